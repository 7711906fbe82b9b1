"""Dilated 3x3 convolutions by Winograd's algorithm: chosen where it pays, right under every schedule."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Conv2d, ConvTranspose2d, Pair, Pool2d, Unary
from convoy.graph.reference import run
from convoy.kernels.conv2d import choose
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.conv2d.pools import estimate_pools
from convoy.kernels.conv2d.schedules import (
    Out,
    Schedule,
    Share,
    choose_schedule,
    count_register_tiles,
    count_tiles,
    schedules,
)
from convoy.kernels.conv2d.winograd import WinogradConv
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.plan.fuse import fuse
from convoy.plan.maps import make_map
from convoy.report.decision import Report
from convoy.target import InstructionSet, Target
from instruction_sets import HOST_SETS

TARGET = Target("avx512")


def dilated(channels: int, size: int, dilation: int, *, stride: int = 1) -> Graph:
    b = Builder([1, channels, size, size])
    w = b.weight(channels, channels, 3, 3)
    return b.graph(
        b.add(
            Conv2d, "x0", w, padding=(dilation,) * 4, dilation=(dilation,) * 2, stride=(stride,) * 2
        )
    )  # fmt: skip


def choice(graph: Graph, options: Options | None = None) -> str:
    report = Report()
    make_plan(graph, TARGET, options, report)
    (decision,) = [d for d in report.decisions if d.step == "plan"]
    return decision.choice


@pytest.mark.parametrize(
    ("channels", "size", "dilation"), [(256, 28, 2), (512, 28, 4), (64, 56, 2), (128, 33, 3)]
)
def test_a_dilated_3x3_of_many_pixels_is_winograd(channels: int, size: int, dilation: int) -> None:
    assert choice(dilated(channels, size, dilation)) == "winograd F(4x4, 3x3)"


def test_others_are_not() -> None:
    assert choice(dilated(256, 28, 2, stride=2)) == "direct"
    assert choice(dilated(256, 28, 2), Options(accuracy="direct")) == "direct"
    # phases of 1 or 2 pixels a side, whose taps see mostly padding
    assert choice(dilated(64, 16, 12)) == "tap by tap"


@pytest.mark.parametrize(
    ("size", "dilation", "last", "extent"),
    [
        ((28, 28), (2, 2), (2, 2), (28, 28)),  # 14 = 4 + 4 + 4 + 2
        ((28, 28), (4, 4), (3, 3), (28, 28)),
        ((15, 13), (2, 2), (4, 3), (16, 14)),  # phases of 8 and 7, of 7 and 6
        ((9, 10), (3, 2), (3, 2), (9, 12)),
        ((3, 9), (4, 4), (2, 3), (8, 12)),  # the last phase has no row
    ],
)
def test_a_last_tile_is_what_is_left_of_the_largest_phase(
    size: tuple[int, int], dilation: tuple[int, int], last: tuple[int, int], extent: tuple[int, int]
) -> None:
    s = Schedule(4, "chunks", 1, 14, 16, 2, 2, dilation)
    assert s.last_tile(*size) == last
    assert s.extent(*size) == extent
    streamed = Schedule(4, "streamed", 1, 4, 16, 1, 0, dilation)
    assert streamed.last_tile(*size) == (4, 4)


def test_register_tiles_are_those_of_all_phases() -> None:
    # as four maps of 14x14, cut together: 22 x 22 products of each
    x = make_map(0, 64, 28, 28, 16)
    s = Schedule(4, "chunks", 1, 14, 64, 2, 2, (2, 2))
    assert count_tiles((28, 28), 4, (2, 2)) == (4, 4)
    cuts = count_register_tiles(s, x)
    assert sum(pixels * count for pixels, count in cuts.items()) == 4 * 22 * 22


def test_the_input_has_the_zeros_that_the_last_tile_of_each_phase_reads() -> None:
    (step,) = [s for s in make_plan(dilated(256, 28, 2), TARGET).steps if isinstance(s, WinogradConv)]
    assert (step.last, step.x.halo) == ((2, 2), (2, 2, 2, 2))
    # phases of 13 and 12: the last tile of the second has a row of its own only past the map
    (step,) = [s for s in make_plan(dilated(256, 25, 2), TARGET).steps if isinstance(s, WinogradConv)]
    assert (step.last, step.x.halo) == ((2, 2), (2, 2, 5, 5))


def test_a_pool_is_no_part_of_it() -> None:
    # a window has pixels of all phases
    b = Builder([1, 64, 56, 56])
    y = b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), padding=(2, 2, 2, 2), dilation=(2, 2))
    pooled = b.add(Pool2d, y, kernel=(2, 2), stride=(2, 2), padding=(0, 0, 0, 0), kind="max")
    graph = b.graph(pooled)
    x = make_map(0, 64, 56, 56, 16)
    for dilation, count in ((1, 1), 1), ((2, 2), 0):
        schedule = choose_schedule(x, x, 4, TARGET, 1, dilation)
        choices = {y: Choice("winograd", {}, schedule)}
        assert len(estimate_pools(graph, fuse(graph), choices, TARGET, 1)) == count


CHANNELS, FILTERS = 35, 50
FORCED: list[tuple[Out, Share, Pair]] = [
    (4, "portions", (2, 2)),
    (4, "resident", (3, 2)),
    (4, "chunks", (1, 4)),
    (4, "chunks", (5, 5)),
    (4, "streamed", (2, 2)),
    (4, "streamed", (5, 1)),
    (2, "chunks", (3, 2)),
    (6, "portions", (2, 2)),
]
FIRST = [
    next(forced for forced in FORCED if forced[1] == share) for share in dict.fromkeys(f[1] for f in FORCED)
]
"""One of each share.  Tiles of each size, dilated, are tested on all sets by csrc/tests."""


@pytest.mark.slow
@pytest.mark.parametrize("isa", HOST_SETS)
def test_every_schedule_agrees_with_the_reference(
    isa: InstructionSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    # sizes that are no multiples of the dilation, a residual, an epilogue that is no clamp
    height, width = 13, 18
    all_forced = FORCED if isa == HOST_SETS[-1] else FIRST
    b = Builder(*[[1, CHANNELS, height, width]] * len(all_forced), batch=None)
    outputs = []
    for i, (_, _, dilation) in enumerate(all_forced):
        out = FILTERS if i % 2 else CHANNELS
        padding = (dilation[0], dilation[1]) * 2
        w = b.weight(out, CHANNELS, 3, 3)
        y = b.add(Conv2d, f"x{i}", w, b.weight(out), padding=padding, dilation=dilation)
        if out == CHANNELS:
            y = b.add(Binary, y, f"x{i}", kind="add")
        outputs.append(b.add(Unary, y, kind=("relu", "silu")[i // 2 % 2]))
    graph = b.graph(*outputs)
    target = Target(isa, l2_bytes=256 << 10 if isa == "avx512" else 64 << 10)
    random = np.random.default_rng(3)
    arrays = [random.standard_normal((3, CHANNELS, height, width)).astype(np.float32) for _ in all_forced]
    for x in arrays:
        x[1, 5, 0, 0] = x[1, 6, height // 2, width - 1] = np.nan
    want = run(graph, arrays, np.float64)
    pending = iter(all_forced)

    def force(node: Conv2d | ConvTranspose2d, *_: object) -> Choice:
        out, share, dilation = next(pending)
        assert node.dilation == dilation
        x = make_map(0, CHANNELS, height, width, target.lanes)
        y = make_map(0, graph.shape(node.output)[1], height, width, target.lanes)
        # of a U too large for the small L2, one that the host's holds
        listed = [s for t in (target, Target(isa)) for s in schedules(x, y, out, t, 2, dilation)]
        tiles = prod(count_tiles((height, width), 4, dilation)) * prod(dilation)
        streamed = Schedule(4, "streamed", 1, 4, -(-tiles // 4) * 4, 1, 0, dilation)  # though they are many
        return Choice("winograd", {}, next(s for s in (*listed, streamed) if s.share == share))

    monkeypatch.setattr(choose, "choose_algorithm", force)
    region = backend.load(graph, target, Options(threads=2))
    region(*[a * 100 for a in arrays])  # leaves the arena dirty
    for forced, got, expected in zip(all_forced, region(*arrays), want, strict=True):
        np.testing.assert_array_equal(np.isnan(got), np.isnan(expected), str(forced))
        error = np.nanmax(np.abs(got - expected)) / np.nanmax(np.abs(expected))
        bound = {2: 2e-6, 4: 1e-5, 6: 5e-5}[forced[0]]
        assert error <= bound, f"{forced}: error {error:.2e} of the largest output"
