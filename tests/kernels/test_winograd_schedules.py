"""Winograd convolutions under every schedule the planner knows, against float64, on every instruction set:
random numbers, and what is not finite or nearly overflows.

Which schedule a convolution gets depends on the machine's caches; here each is forced in turn.
"""

from __future__ import annotations

from itertools import product
from unittest.mock import patch

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Conv2d, ConvTranspose2d, Unary
from convoy.graph.reference import Values, run
from convoy.kernels.conv2d import choose
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.conv2d.schedules import OUTS, STREAMED_TILES, Schedule, count_tiles, schedules
from convoy.options import Options
from convoy.plan.buffers import Map
from convoy.plan.maps import make_map
from convoy.target import InstructionSet, Target, host
from convoy.target.kernels import CacheShares
from instruction_sets import HOST_SETS
from together import Asked

BOUNDS = {2: 2e-6, 4: 1e-5, 6: 5e-5}
"""Error, of the largest output, by tile: those that csrc/kernels/conv2d_winograd.h documents."""
FORCED = [
    *product(OUTS["fastest"], ("portions", "resident", "chunks"), (0,)),
    *product((4, 6), ("portions", "chunks"), (2,)),
    (4, "streamed", 0),
]
"""Tiles, how threads share them, and rows of points of a slab of weights."""
BY_ROWS = CacheShares(slab_rows=(0, 2))
CHANNELS, HEIGHT, WIDTH, FILTERS = 40, 11, 17, 50


def residual_convolutions(count: int) -> Graph:
    """relu(x + conv(x)) for each of ``count`` inputs; no two convolutions share one.

    Of any number of images, so that all tests on as many threads share what is compiled.
    """
    b = Builder(*[[1, CHANNELS, HEIGHT, WIDTH]] * count, batch=None)
    outputs = []
    for i in range(count):
        out = FILTERS if i % 2 else CHANNELS
        y = b.add(Conv2d, f"x{i}", b.weight(out, CHANNELS, 3, 3), b.weight(out), padding=(1, 1, 1, 1))
        if out == CHANNELS:
            y = b.add(Binary, y, f"x{i}", kind="add")
        outputs.append(b.add(Unary, y, kind="relu"))
    return b.graph(*outputs)


def stream(y: Map) -> Schedule:
    """The schedule that does not store the transformed weights."""
    rows, columns = count_tiles((y.height, y.width), 4)
    room = -(-rows * columns // STREAMED_TILES) * STREAMED_TILES
    return Schedule(4, "streamed", 1, STREAMED_TILES, room, 1, 0)


def load_forced(
    graph: Graph, isa: InstructionSet, threads: int, monkeypatch: pytest.MonkeyPatch
) -> backend.LoadedRegion:
    """The residual convolutions, the i-th under the i-th forced schedule."""
    # a small L2 makes several portions and slabs of these small maps
    target = Target(isa, l2_bytes=256 << 10 if isa == "avx512" else 64 << 10, shares=BY_ROWS)
    pending = iter(FORCED)
    seen = []

    def force(node: Conv2d | ConvTranspose2d, *_: object) -> Choice:
        out, share, rows = next(pending)
        x = make_map(0, CHANNELS, HEIGHT, WIDTH, target.lanes)
        y = make_map(0, graph.shape(node.output)[1], HEIGHT, WIDTH, target.lanes)
        kind = (share, rows)
        found = [s for s in schedules(x, y, out, target, threads) if (s.share, s.rows) == kind]
        # of a U too large for the small L2, one that the host's holds; of an M too large for L1, any
        roomy = schedules(x, y, out, Target(isa, shares=BY_ROWS), threads)
        found = found or [s for s in roomy if (s.share, s.rows) == kind]
        found = found or [stream(y)]
        seen.append(found[0])
        return Choice("winograd", {}, found[0])

    monkeypatch.setattr(choose, "choose_algorithm", force)
    region = backend.load(graph, target, Options(threads=threads))
    assert [(s.out, s.share, s.rows) for s in seen] == FORCED
    assert any(s.portions > 1 for s in seen)
    return region


@pytest.mark.slow
@pytest.mark.parametrize(("isa", "threads"), [*((isa, 2) for isa in HOST_SETS), (host().isa, 1)])
def test_every_schedule_agrees_with_the_reference(
    isa: InstructionSet, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = residual_convolutions(len(FORCED))
    region = load_forced(graph, isa, threads, monkeypatch)
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs]
    region(*[a * 100 for a in arrays])  # leaves the arena dirty
    for (out, share, rows), got, want in zip(
        FORCED, region(*arrays), run(graph, arrays, np.float64), strict=True
    ):
        error = float(np.abs(got - want).max() / np.abs(want).max())
        assert error <= BOUNDS[out], (
            f"F({out}, 3), {share}, {rows}: error {error:.2e} of the largest output"
        )


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("isa", HOST_SETS)
def test_every_schedule_gives_what_is_not_finite_to_its_readers_only(
    isa: InstructionSet, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = residual_convolutions(len(FORCED))
    region = load_forced(graph, isa, 2, monkeypatch)
    random = np.random.default_rng(4)
    arrays = [random.standard_normal((2, CHANNELS, HEIGHT, WIDTH)).astype(np.float32) for _ in graph.inputs]
    for x in arrays:  # at corners, where tiles reach over the edge, and inside
        for row, column in ((0, 0), (HEIGHT // 2, WIDTH // 2), (HEIGHT - 1, WIDTH - 1)):
            x[1, 5, row, column] = value
    with np.errstate(invalid="ignore"):
        expected = run(graph, arrays, np.float64)
    for (out, share, rows), got, want in zip(FORCED, region(*arrays), expected, strict=True):
        assert_agrees(got, want, BOUNDS[out], f"F({out}, 3), {share}, {rows}")


@pytest.mark.slow
@pytest.mark.parametrize("isa", HOST_SETS)
def test_sums_that_only_winograd_overflows_come_out_right(
    isa: InstructionSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = residual_convolutions(len(FORCED))
    region = load_forced(graph, isa, 2, monkeypatch)
    random = np.random.default_rng(5)
    arrays = [random.standard_normal(graph.shape(n)) for n in graph.inputs]
    largest = max(np.abs(y).max() for y in run(graph, arrays, np.float64))
    huge = [(a * (0.9 * np.finfo(np.float32).max / largest)).astype(np.float32) for a in arrays]
    for (out, share, rows), got, want in zip(
        FORCED, region(*huge), run(graph, huge, np.float64), strict=True
    ):
        assert np.isfinite(want.astype(np.float32)).all()
        assert_agrees(got, want, BOUNDS[out], f"F({out}, 3), {share}, {rows}")


def two_of_slabs(height: int, width: int) -> Builder:
    b = Builder([1, 90, height, width])
    y = b.add(Conv2d, "x0", b.weight(70, 90, 3, 3), b.weight(70), padding=(1, 1, 1, 1))
    b.add(Conv2d, y, b.weight(90, 70, 3, 3), b.weight(90), padding=(1, 1, 1, 1))
    return b


def asked(height: int, width: int, isa: InstructionSet) -> list[Asked]:
    b = two_of_slabs(height, width)
    graph = b.graph(b.nodes[-1].output)
    target = Target(isa, l2_bytes=128 << 10, shares=BY_ROWS)

    def force(node: Conv2d | ConvTranspose2d, *_: object) -> Choice:
        x, y = (make_map(0, *graph.shape(n)[1:], target.lanes) for n in (node.inputs[0], node.output))
        found = [s for s in schedules(x, y, 4, target, 2) if s.rows == 2 and s.share == "chunks"]
        assert found[0].slab < x.blocks
        return Choice("winograd", {}, found[0])

    return [
        Asked(graph, target, Options(threads=2), lambda: patch.object(choose, "choose_algorithm", force))
    ]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize(("height", "width"), [(2, 17), (7, 3), (9, 9)])
def test_rows_of_points_that_no_tile_has_are_left_out(
    height: int, width: int, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    # of two rows of pixels a tile has four rows of points: of the last pair of rows there is nothing
    b = two_of_slabs(height, width)
    arrays = b.arrays()
    (found,) = regions[0](*arrays)
    (want,) = run(b.graph(b.nodes[-1].output), arrays, np.float64)
    assert float(np.abs(found - want).max() / np.abs(want).max()) <= BOUNDS[4]


def assert_agrees(got: Values, want: Values, bound: float, what: str) -> None:
    """The same NaN and infinities; the others within the bound of the largest."""
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite], want[~finite], what)
    np.testing.assert_allclose(
        got[finite], want[finite], rtol=0, atol=bound * np.abs(want[finite]).max(), err_msg=what
    )
