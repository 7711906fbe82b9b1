"""First layers by Winograd's algorithm along their rows, against float64 and against direct convolutions,
on every instruction set.

Each convolution here is computed so, whatever it would cost.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Pool2d, Unary
from convoy.graph.reference import run
from convoy.kernels.conv2d import choose
from convoy.kernels.strips import chains
from convoy.kernels.strips.window import Estimate
from convoy.options import Options
from convoy.target import InstructionSet, Target
from convoy.target.kernels import CacheShares
from instruction_sets import HOST_SETS, in_turn
from together import Asked

BOUND = 2e-6
"""Error, of the largest output: a direct convolution's."""

LAYERS = {
    # name: channels, height, width; out channels, kernel, stride, padding
    "resnet": ((3, 40, 44), (33, 7, 7), (2, 2), (3, 3, 3, 3)),
    "no_padding": ((3, 31, 37), (64, 7, 8), (2, 2), (0, 0, 0, 0)),
    "uneven": ((2, 23, 29), (40, 5, 6), (1, 2), (3, 0, 1, 4)),
    "four_phases": ((1, 35, 61), (48, 4, 13), (3, 4), (1, 2, 1, 2)),
    "one_tile": ((3, 9, 9), (20, 3, 7), (2, 2), (0, 1, 0, 1)),
    "narrow": ((1, 12, 5), (17, 2, 5), (1, 2), (0, 0, 0, 0)),
}


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "row_cycles", lambda *_: 0.0)


def first_layer(name: str, batch: int = 1, residual: bool = False) -> Graph:
    """The layer; with a residual, too, if asked for: both have one tile, which is compiled once."""
    (channels, height, width), (out, *kernel), stride, padding = LAYERS[name]
    rows = (height + padding[0] + padding[2] - kernel[0]) // stride[0] + 1
    columns = (width + padding[1] + padding[3] - kernel[1]) // stride[1] + 1
    b = Builder([1, channels, height, width], [1, out, rows, columns], batch=batch)
    outputs = []
    for added in (False, True)[: 1 + residual]:
        w, bias = b.weight(out, channels, *kernel), b.weight(out)
        y = b.add(Conv2d, "x0", w, bias, stride=stride, padding=padding)
        y = b.add(Binary, y, "x1", kind="add") if added else y
        outputs.append(b.add(Unary, y, kind="relu"))
    return b.graph(*outputs)


def draw(graph: Graph, batch: int = 1) -> list[np.ndarray]:
    random = np.random.default_rng(8)
    return [
        random.standard_normal((batch, *graph.shape(name)[1:])).astype(np.float32) for name in graph.inputs
    ]


def by_rows(graph: Graph, isa: InstructionSet, threads: int) -> Asked:
    target = Target(isa, shares=CacheShares(row_point_bytes=1 << 30))
    return Asked(graph, target, Options(threads=threads))


def hold_to_rows(graph: Graph, region: LoadedRegion) -> None:
    points = [step for step in region.code.report.steps if "points of the rows" in step]
    assert len(points) == sum(isinstance(node, Conv2d) for node in graph.nodes)


def asked(isa: InstructionSet, name: str) -> list[Asked]:
    return [by_rows(first_layer(name, residual=True), isa, threads) for threads in (1, 3)]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize(("name", "isa"), in_turn(LAYERS))
def test_rows_agree_with_the_reference(isa: InstructionSet, name: str, regions: list[LoadedRegion]) -> None:
    graph = first_layer(name, residual=True)
    arrays = draw(graph)
    expected = run(graph, arrays, np.float64)
    for region in regions:
        hold_to_rows(graph, region)
        region(*[a * 100 for a in arrays])  # leaves the arena dirty
        for got, want in zip(region(*arrays), expected, strict=True):
            error = float(np.abs(got - want).max() / np.abs(want).max())
            assert error <= BOUND, f"error {error:.2e} of the largest output"


def load(graph: Graph, isa: InstructionSet, threads: int) -> LoadedRegion:
    asked = by_rows(graph, isa, threads)
    region = backend.load(graph, asked.target, asked.options)
    hold_to_rows(graph, region)
    return region


# by themselves: each set's are the same for all values, so that the cache has them
@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38, 1e17], ids=str)
@pytest.mark.parametrize("isa", HOST_SETS)
def test_what_is_too_large_is_computed_directly(isa: InstructionSet, value: float) -> None:
    graph = first_layer("resnet", batch=2)
    arrays = draw(graph, batch=2)
    region = load(graph, isa, 2)
    direct = backend.load(graph, Target(isa), Options(threads=2, accuracy="direct"))
    before = region(*arrays)
    for row, column in ((0, 0), (20, 21), (39, 43)):
        dirty = [a.copy() for a in arrays]
        dirty[0][1, 2, row, column] = value
        got, want = region(*dirty)[0], direct(*dirty)[0]
        np.testing.assert_array_equal(got[1], want[1])
        np.testing.assert_array_equal(got[0], before[0][0])  # of the other image
    np.testing.assert_array_equal(region(*arrays)[0], before[0])


def first_layer_and_pool() -> Graph:
    b = Builder([1, 3, 53, 47])
    x = b.add(Conv2d, "x0", b.weight(33, 3, 7, 7), b.weight(33), stride=(2, 2), padding=(3, 3, 3, 3))
    x = b.add(
        Pool2d, b.add(Unary, x, kind="relu"), kind="max", kernel=(3, 3), stride=(2, 2),
        padding=(1, 1, 1, 1),
    )  # fmt: skip
    return b.graph(x)


def asked_in_strips(isa: InstructionSet, rows: int) -> list[Asked]:
    def estimate(stages: object, *_: object) -> Estimate:
        return Estimate(apart=1e9, together=0, rows=rows)

    under = partial(patch.object, chains, "estimate_chain", estimate)
    return [replace(by_rows(first_layer_and_pool(), isa, 2), under=under)]


@pytest.mark.together(of=asked_in_strips)
@pytest.mark.parametrize("rows", [1, 3, 100])
@pytest.mark.parametrize("isa", HOST_SETS)
def test_strips_of_it_agree_with_the_reference(
    isa: InstructionSet, rows: int, regions: list[LoadedRegion]
) -> None:
    graph, (region,) = first_layer_and_pool(), regions
    hold_to_rows(graph, region)
    assert any(f"strips of {rows} rows" in step for step in region.code.report.steps)
    arrays = draw(graph)
    (got,), (want,) = region(*arrays), run(graph, arrays, np.float64)
    assert float(np.abs(got - want).max() / np.abs(want).max()) <= BOUND
    arrays[0][0, 1, 11, 13] = np.inf
    (got,), (want,) = region(*arrays), run(graph, arrays)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
