"""Pools computed from the tiles of a Winograd convolution: bit by bit what the pool by itself makes, for
all tiles and on every instruction set; and the networks they stand in, against the float64 reference.

Every convolution that can be is one of Winograd's, whatever it would cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Binary, Concat, Conv2d, ConvTranspose2d, Pool2d, Unary
from convoy.graph.reference import Values, run
from convoy.kernels import planner
from convoy.kernels.conv2d import choose
from convoy.kernels.conv2d.choose import Choice, winograd_tiles
from convoy.kernels.conv2d.pools import TilePool
from convoy.kernels.conv2d.schedules import OUTS, Out, choose_schedule
from convoy.kernels.conv2d.winograd import WinogradConv
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.plan.maps import make_map
from convoy.target import InstructionSet, Target, host
from instruction_sets import in_turn

BOUNDS = {2: 4e-5, 4: 4e-5, 6: 2e-4}
"""Error, of the largest output, by tile: four times one F(4, 3)'s or F(6, 3)'s (conv2d_winograd.h)."""


Draw = Callable[[Builder, str], list[str]]
"""Adds a network that reads a tensor, and names its results."""
WHERE = ((0, 0), (0, 7), (5, 1), (6, 6), (9, 8), (10, 10))
"""Pixels that are not finite in turn: a maximum is NaN only where its last tap is, and these reach each
place of some window."""


def force_winograd(patch: pytest.MonkeyPatch, out: Out) -> None:
    """All convolutions that can be get this tile."""
    estimated = choose.choose_algorithm

    def force(
        node: Conv2d | ConvTranspose2d, graph: Graph, target: Target, threads: int, options: Options,
        blocked: bool,
    ) -> Choice:  # fmt: skip
        if not isinstance(node, Conv2d) or not winograd_tiles(node, graph, target, options):
            return estimated(node, graph, target, threads, options, blocked)
        x, y = (make_map(0, *graph.shape(n)[1:], target.lanes) for n in (node.inputs[0], node.output))
        return Choice("winograd", {}, choose_schedule(x, y, out, target, threads))

    patch.setattr(choose, "choose_algorithm", force)


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


def both_kinds(b: Builder, x: str) -> list[str]:
    return [pool(b, conv(b, x, 16), ceil=True), pool(b, conv(b, x, 16), "avg", ceil=True)]


NETWORKS = {
    vgg_like: (26, 23),
    unet_like: (24, 24),
    rounded_up: (13, 13),
    rounded_down: (11, 11),
    activations: (9, 16),
    read_by_all: (9, 10),
    into_a_concat: (12, 12),
    both_kinds: (11, 11),
}
"""Sizes of their inputs.  What takes time to compile is the forms of the last tile, pooled and not: the
convolutions share some, in which 2 to 6 rows or columns are left."""


def networks_for(isa: InstructionSet, out: Out) -> list[Draw]:
    """All, but on other sets than the host's two of F(4, 3) and F(6, 3), whose forms take longest."""
    return [vgg_like, activations] if out != 2 and isa != host().isa else list(NETWORKS)


@dataclass(frozen=True)
class Pools:
    """A region that holds each network twice; only those of its first inputs are to pool from tiles."""

    drawn: list[Draw]
    graph: Graph
    networks: list[str]
    """The network of each of the first half of the outputs."""
    region: backend.LoadedRegion
    out: Out

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [self.graph.shape(name) for name in self.graph.inputs[: len(self.drawn)]]

    def run(self, arrays: Sequence[Values]) -> tuple[list[Values], list[Values]]:
        """The networks' outputs, with pools computed from tiles, and with the same by themselves."""
        outputs = self.region(*arrays, *arrays)
        return outputs[: len(self.networks)], outputs[len(self.networks) :]


@pytest.fixture(scope="module", params=in_turn(OUTS["fastest"]), ids=lambda p: f"F({p[0]}, 3)-{p[1]}")
def pools(request: pytest.FixtureRequest) -> Pools:
    """All as one region, which compiles faster than many, and once for all tests."""
    out, isa = request.param
    drawn = networks_for(isa, out)
    b = Builder(*[[1, 16, *NETWORKS[network]] for network in drawn] * 2)
    made = []
    for copy in range(2):
        b.random = np.random.default_rng(0)
        for i, network in enumerate(drawn):
            made += [(name, network.__name__) for name in network(b, f"x{copy * len(drawn) + i}")]
    graph = b.graph(*(name for name, _ in made))
    networks = [network for _, network in made[: len(made) // 2]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(planner, "images_worth_a_team", lambda *_: 0)
        force_winograd(patch, out)
        estimate_pools = planner.estimate_pools

        def take_first(graph: Graph, *rest: Any) -> list[TilePool]:
            """All pools of the first half pay, whatever they are estimated at."""
            first = read_from(graph, graph.inputs[: len(drawn)])
            found = estimate_pools(graph, *rest)
            kept = [replace(pool, apart=1e18) for pool in found if pool.fusion.anchor.inputs[0] in first]
            assert len(found) == 2 * len(kept) >= 2 * len(drawn)
            return kept

        patch.setattr(planner, "estimate_pools", take_first)
        region = backend.load(graph, Target(isa), Options(threads=2))
    return Pools(drawn, graph, networks, region, out)


def read_from(graph: Graph, names: Sequence[str]) -> set[str]:
    """All that is computed from these tensors."""
    found = set(names)
    for node in graph.nodes:
        if found.intersection(node.inputs):
            found.add(node.output)
    return found


@pytest.mark.slow
def test_pools_from_tiles_are_the_pools_by_themselves(pools: Pools) -> None:
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in pools.shapes]
    pools.run([100 * a for a in arrays])  # leaves the arena dirty
    bound, reference = BOUNDS[pools.out], run(pools.graph, [*arrays, *arrays], np.float64)
    for network, got, same, want in zip(pools.networks, *pools.run(arrays), reference, strict=False):
        np.testing.assert_array_equal(got, same, network)
        assert np.abs(got - want).max() <= bound * np.abs(want).max(), network


@pytest.mark.slow
@pytest.mark.parametrize(
    "pools", [(out, host().isa) for out in OUTS["fastest"]], indirect=True, ids=lambda p: f"F({p[0]}, 3)"
)
def test_what_is_not_finite_reaches_the_same_windows(pools: Pools) -> None:
    random = np.random.default_rng(6)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in pools.shapes]
    image = arrays[pools.drawn.index(both_kinds)]
    for value in (np.nan, np.inf, -np.inf):
        for row, column in WHERE:
            before, image[0, 3, row, column] = image[0, 3, row, column], value
            for network, got, want in zip(pools.networks, *pools.run(arrays), strict=True):
                np.testing.assert_array_equal(got, want, network)
                assert network == "both_kinds" or np.isfinite(want).all()
            image[0, 3, row, column] = before


@pytest.mark.parametrize("out", OUTS["fastest"], ids=lambda out: f"F({out}, 3)")
@pytest.mark.parametrize("network", NETWORKS)
def test_each_of_these_pools_from_tiles(network: Draw, out: Out, monkeypatch: pytest.MonkeyPatch) -> None:
    force_winograd(monkeypatch, out)
    b = Builder([1, 16, *NETWORKS[network]])
    steps = make_plan(b.graph(*network(b, "x0")), Target("avx512")).steps
    assert any(isinstance(step, WinogradConv) and step.pool for step in steps)
