"""Pools computed from the tiles of a Winograd convolution: bit by bit what the pool by itself makes, for
all tiles and on every instruction set; and the networks they stand in, against the float64 reference.

Every convolution that can be is one of Winograd's, whatever it would cost.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Binary, Concat, Conv2d, ConvTranspose2d, Pool2d, Unary
from convoy.graph.reference import run
from convoy.kernels import planner
from convoy.kernels.conv2d import choose
from convoy.kernels.conv2d.choose import Choice, winograd_tiles
from convoy.kernels.conv2d.schedules import OUTS, Out, choose_schedule
from convoy.kernels.conv2d.winograd import WinogradConv
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.plan.maps import make_map
from convoy.target import InstructionSet, Target, host

SETS: list[InstructionSet] = ["portable", "avx2", "avx512"]
HOST_SETS = SETS[: SETS.index(host().isa) + 1]
BOUNDS = {2: 4e-5, 4: 4e-5, 6: 2e-4}
"""Error, of the largest output, by tile: four times one F(4, 3)'s or F(6, 3)'s (conv2d_winograd.h)."""


@pytest.fixture(params=OUTS["fastest"], ids=lambda out: f"F({out}, 3)")
def all_winograd(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    """The bound of the tile that all convolutions get."""
    out: Out = request.param
    estimated = choose.choose_algorithm

    def force(
        node: Conv2d | ConvTranspose2d, graph: Graph, target: Target, threads: int, options: Options,
        blocked: bool,
    ) -> Choice:  # fmt: skip
        if not isinstance(node, Conv2d) or not winograd_tiles(node, graph, options):
            return estimated(node, graph, target, threads, options, blocked)
        x, y = (make_map(0, *graph.shape(n)[1:], target.lanes) for n in (node.inputs[0], node.output))
        return Choice("winograd", {}, choose_schedule(x, y, out, target, threads))

    monkeypatch.setattr(choose, "choose_algorithm", force)
    return BOUNDS[out]


def conv(b: Builder, x: str, out: int) -> str:
    w = b.weight(out, b.tensors[x].shape[1], 3, 3)
    return b.add(Conv2d, x, w, b.weight(out), padding=(1, 1, 1, 1))


def relu(b: Builder, x: str) -> str:
    return b.add(Unary, x, kind="relu")


def pool(b: Builder, x: str, kind: str = "max", ceil: bool = False) -> str:
    n, c, *size = b.tensors[x].shape
    shape = [n, c, *((s + ceil) // 2 for s in size)]
    return b.add(Pool2d, x, shape=shape, kind=kind, kernel=(2, 2), stride=(2, 2))


def vgg_like(b: Builder, x: str) -> list[str]:
    # the second pool ends within a window, and the map it reads has lanes past its channels
    x = pool(b, relu(b, conv(b, relu(b, conv(b, x, 20)), 32)))
    return [pool(b, relu(b, conv(b, x, 21)))]


def unet_like(b: Builder, x: str) -> list[str]:
    # others read what is pooled, in a concat
    wide = relu(b, conv(b, x, 32))
    deep = relu(b, conv(b, pool(b, wide), 48))
    up = b.add(ConvTranspose2d, deep, b.weight(48, 32, 2, 2), b.weight(32), stride=(2, 2))
    return [conv(b, b.add(Concat, up, wide, axis=1), 16)]


def rounded_up(b: Builder, x: str) -> list[str]:
    x = conv(b, pool(b, conv(b, x, 32), ceil=True), 16)
    return [pool(b, x, "avg", ceil=True)]


def rounded_down(b: Builder, x: str) -> list[str]:
    return [conv(b, pool(b, conv(b, x, 24), "avg"), 16)]


def activations(b: Builder, x: str) -> list[str]:
    # an epilogue that is finished after the tile is stored; an activation that follows the pool
    y = b.add(Binary, b.add(Unary, conv(b, x, 16), kind="silu"), x, kind="add")
    return [b.add(Unary, pool(b, y), kind="tanh")]


def read_by_all(b: Builder, x: str) -> list[str]:
    # two pools, and the region's output
    x = conv(b, x, 16)
    return [x, pool(b, x), pool(b, x, "avg")]


def into_a_concat(b: Builder, x: str) -> list[str]:
    return [conv(b, b.add(Concat, *(pool(b, conv(b, x, 32)) for _ in range(2)), axis=1), 16)]


NETWORKS = {
    vgg_like: (26, 22),
    unet_like: (24, 18),
    rounded_up: (13, 9),
    rounded_down: (11, 17),
    activations: (10, 14),
    read_by_all: (10, 10),
    into_a_concat: (12, 12),
}


def draw() -> tuple[Graph, list[str]]:
    """All of them as one region, which compiles faster than seven; the network of each of its outputs."""
    b = Builder(*([1, 16, *size] for size in NETWORKS.values()))
    made = [(name, f.__name__) for i, f in enumerate(NETWORKS) for name in f(b, f"x{i}")]
    return b.graph(*(name for name, _ in made)), [network for _, network in made]


@pytest.mark.parametrize("isa", HOST_SETS)
def test_pools_from_tiles_are_the_pools_by_themselves(
    isa: InstructionSet, all_winograd: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, networks = draw()
    arrays = Builder(*[graph.shape(name) for name in graph.inputs], seed=5).arrays()
    from_tiles = backend.load(graph, Target(isa), Options(threads=2))
    monkeypatch.setattr(planner, "choose_pools", lambda *_: {})
    by_themselves = backend.load(graph, Target(isa), Options(threads=2))
    from_tiles(*[100 * a for a in arrays])  # leaves the arena dirty
    results = zip(
        networks, from_tiles(*arrays), by_themselves(*arrays), run(graph, arrays, np.float64), strict=True
    )
    for network, got, same, want in results:
        np.testing.assert_array_equal(got, same, network)
        assert np.abs(got - want).max() <= all_winograd * np.abs(want).max(), network


@pytest.mark.usefixtures("all_winograd")
def test_what_is_not_finite_reaches_the_same_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    # a maximum is NaN only where its last tap is: a NaN reaches each place of some window
    b = Builder([1, 16, 15, 15])
    x = conv(b, "x0", 16)
    graph = b.graph(pool(b, x, ceil=True), pool(b, conv(b, "x0", 16), "avg", ceil=True))
    from_tiles = backend.load(graph, options=Options(threads=2))
    monkeypatch.setattr(planner, "choose_pools", lambda *_: {})
    by_themselves = backend.load(graph, options=Options(threads=2))
    for value in (np.nan, np.inf, -np.inf):
        for row, column in ((0, 0), (0, 7), (5, 1), (6, 6), (9, 8), (14, 14)):
            (image,) = b.arrays()
            image[0, 3, row, column] = value
            for got, want in zip(from_tiles(image), by_themselves(image), strict=True):
                np.testing.assert_array_equal(got, want)


@pytest.mark.usefixtures("all_winograd")
@pytest.mark.parametrize("network", NETWORKS)
def test_each_of_these_pools_from_tiles(network: Callable[[Builder, str], list[str]]) -> None:
    b = Builder([1, 16, *NETWORKS[network]])
    steps = make_plan(b.graph(*network(b, "x0")), Target("avx512")).steps
    assert any(isinstance(step, WinogradConv) and step.pool for step in steps)
