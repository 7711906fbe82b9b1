"""Which algorithm a convolution gets, and that the choice is reported."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.options import Options
from convoy.plan.plan import make_plan
from convoy.plan.steps import DepthwiseConv, DirectConv, WinogradConv
from convoy.report.decision import Report
from convoy.target import Target

TARGET = Target("avx512")


def conv(channels: int, size: int, out: int, kernel: int = 3, **attributes: object) -> Graph:
    b = Builder([1, channels, size, size])
    groups = int(attributes.get("groups", 1))  # type: ignore[call-overload]
    pad = kernel // 2
    w = b.weight(out, channels // groups, kernel, kernel)
    return b.graph(b.add(Conv2d, "x0", w, padding=(pad, pad, pad, pad), **attributes))


def algorithm(graph: Graph, options: Options | None = None) -> type:
    steps = make_plan(graph, TARGET, options).steps
    (found,) = {type(s) for s in steps} & {DirectConv, DepthwiseConv, WinogradConv}
    return found


def test_wide_3x3_is_winograd() -> None:
    assert algorithm(conv(64, 56, 64)) is WinogradConv


@pytest.mark.parametrize(
    "graph",
    [
        conv(64, 56, 64, kernel=1),
        conv(64, 56, 64, kernel=5),
        conv(64, 56, 64, stride=(2, 2)),
        conv(64, 56, 64, groups=4),
        conv(3, 56, 64),
        conv(512, 4, 512),
    ],
    ids=["1x1", "5x5", "strided", "grouped", "few channels", "one tile"],
)
def test_others_are_direct(graph: Graph) -> None:
    # what F(4x4, 3x3) cannot compute, and where transformed weights cost more than they save
    assert algorithm(graph) is DirectConv


def test_accuracy_direct_turns_winograd_off() -> None:
    assert algorithm(conv(64, 56, 64), Options(accuracy="direct")) is DirectConv


def test_one_filter_a_channel_is_depthwise() -> None:
    assert algorithm(conv(32, 28, 32, groups=32)) is DepthwiseConv


def test_a_filter_wider_than_a_tile_holds_is_direct() -> None:
    assert algorithm(conv(32, 28, 32, kernel=13, groups=32)) is DirectConv


def test_the_choice_is_a_decision_with_its_estimates() -> None:
    report = Report()
    make_plan(conv(64, 56, 64), TARGET, None, report)
    (decision,) = [d for d in report.decisions if d.step == "plan"]
    assert decision.choice == "winograd"
    assert "direct" in decision.reason
    assert "winograd" in decision.reason


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize(("channels", "size"), [(16, 5), (64, 56), (256, 14), (512, 28)])
def test_schedules_cover_every_tile_and_block(channels: int, size: int, threads: int) -> None:
    steps = make_plan(conv(channels, size, channels), TARGET, Options(threads=threads)).steps
    for step in steps:
        if isinstance(step, WinogradConv):
            assert step.groups * step.tiles_per_group >= step.tiles[0] * step.tiles[1]
            assert step.pixels <= step.tiles_per_group
            blocks = (step.chunk_count - 1) * step.blocks[0] + step.blocks[1]
            assert blocks == step.y.blocks
