"""Which groups run strip by strip, and that each chain is reported with its estimate."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Pool2d, Unary
from convoy.kernels.conv2d.depthwise import DepthwiseConv
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.conv2d.row_products import MultiplyRows
from convoy.kernels.elementwise import ElementwiseMap
from convoy.kernels.planner import make_plan
from convoy.kernels.pool import Pool
from convoy.kernels.strips.strips import Strips
from convoy.kernels.strips.window import Window, strip_heights
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import Target

TARGET = Target("avx512")


def conv(b: Builder, x: str, out: int, kernel: int = 1, **attributes: object) -> str:
    channels = b.tensors[x].shape[1]
    groups = int(attributes.get("groups", 1))  # type: ignore[call-overload]
    pad = kernel // 2
    w = b.weight(out, channels // groups, kernel, kernel)
    return b.add(Conv2d, x, w, padding=(pad, pad, pad, pad), **attributes)


def bottleneck(size: int, channels: int, wide: int) -> Graph:
    """expand, depthwise, project, add: as in MobileNetV2."""
    b = Builder([1, channels, size, size])
    x = conv(b, "x0", channels)
    y = conv(b, conv(b, x, wide), wide, 3, groups=wide)
    return b.graph(b.add(Binary, conv(b, y, channels), x, kind="add"))


def members(graph: Graph, threads: int = 1) -> list[list[type]]:
    steps = make_plan(graph, TARGET, Options(threads=threads)).steps
    return [[type(m.step) for m in step.members] for step in steps if isinstance(step, Strips)]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_large_inverted_bottlenecks_run_in_strips(threads: int) -> None:
    assert members(bottleneck(112, 24, 144), threads)[-1][-3:] == [DirectConv, DepthwiseConv, DirectConv]


def test_small_ones_do_not() -> None:
    # all of it fits L2, and the weights are larger than the maps
    assert members(bottleneck(7, 160, 960)) == []


def test_scale_and_relu_run_with_the_convolution_they_precede() -> None:
    b = Builder([1, 256, 56, 56])
    x = conv(b, "x0", 256)
    y = b.add(Unary, b.add(Binary, x, b.weight(256, 1, 1), kind="mul"), kind="relu")
    graph = b.graph(conv(b, y, 128), x)
    assert [ElementwiseMap, DirectConv] in [m[-2:] for m in members(graph)]


def test_a_stem_runs_with_its_pool() -> None:
    b = Builder([1, 3, 224, 224])
    x = conv(b, "x0", 64, 7, stride=(2, 2))
    x = b.add(
        Pool2d, x, shape=[1, 64, 56, 56], kind="max", kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)
    )
    assert members(b.graph(x)) == [[MultiplyRows, Pool]]


def test_a_result_with_halo_that_others_read_is_not_taken_apart() -> None:
    # two threads would write the rows where their shares meet
    b = Builder([1, 24, 112, 112])
    x = conv(b, "x0", 144)
    y = conv(b, x, 144, 3, groups=144)
    assert members(b.graph(b.add(Binary, x, y, kind="mul"))) == [[DepthwiseConv, ElementwiseMap]]


def test_a_chain_is_a_decision_with_its_estimates() -> None:
    report = Report()
    make_plan(bottleneck(112, 24, 144), TARGET, None, report)
    (decision,) = [d for d in report.decisions if d.choice == "strips"]
    assert "one by one" in decision.reason
    assert decision.node.count("conv2d") >= 3


def test_strips_hold_what_the_member_after_them_reads() -> None:
    # 5x5 stride 2, then 3x3: 4 rows come from 6, those from 15
    windows = [Window(), Window(2, 2, 4), Window(1, 1, 2)]
    assert strip_heights(windows, 4) == [15, 6]
