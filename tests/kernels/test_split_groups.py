"""A convolution by groups becomes one a group where Winograd's algorithm computes those faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.messages import op_name
from convoy.graph.ops import Binary, Conv2d, Unary
from convoy.graph.reference import run
from convoy.graph.verify import verify
from convoy.kernels.conv2d.siblings import with_activation
from convoy.kernels.conv2d.split_groups import split_convolution, split_groups
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import Target

TARGET = Target("avx2")


def grouped(
    channels: int = 128, groups: int = 2, size: int = 12, kernel: int = 3, act: str | None = "relu",
    bias: bool = True, **attributes: Any,
) -> tuple[Builder, Graph]:  # fmt: skip
    """A convolution by groups, read by another."""
    b = Builder([1, channels, size, size])
    constants = [b.weight(channels, channels // groups, kernel, kernel), *([b.weight(channels)] * bias)]
    pads = {"padding": (kernel // 2,) * 4} | attributes
    y = b.add(Conv2d, "x0", *constants, groups=groups, **pads)
    y = b.add(Unary, y, kind=act) if act else y
    return b, b.graph(b.add(Conv2d, y, b.weight(8, channels, 1, 1)))


def split(graph: Graph, accuracy: Any = "fast", report: Report | None = None) -> Graph:
    return split_groups(graph, TARGET, 1, Options(accuracy=accuracy), report)


@pytest.mark.parametrize("groups", [2, 4])
@pytest.mark.parametrize("act", ["relu", "silu", None])
@pytest.mark.parametrize("bias", [True, False])
def test_groups_apart_are_the_same_function(groups: int, act: str | None, bias: bool) -> None:
    b, graph = grouped(64, groups, 7, act=act, bias=bias)
    found = with_activation(graph.nodes[0], graph)  # type: ignore[arg-type]
    assert found is not None
    apart = split_convolution(found, graph)
    verify(apart)
    of_a_group = ["slice", "conv2d", *([act] if act else [])]
    assert [op_name(node) for node in apart.nodes] == [*of_a_group * groups, "concat", "conv2d"]
    arrays = b.arrays()
    for want, got in zip(run(graph, arrays), run(apart, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_region_computes_each_group_in_its_place(threads: int) -> None:
    b = Builder([1, 16, 12, 12])
    x = b.add(Conv2d, "x0", b.weight(128, 16, 1, 1))
    y = b.add(Conv2d, x, b.weight(128, 64, 3, 3), b.weight(128), groups=2, padding=(1, 1, 1, 1))
    y = b.add(Unary, y, kind="relu")
    graph = b.graph(b.add(Conv2d, y, b.weight(8, 128, 1, 1)))
    region = backend.load(graph, options=Options(threads=threads))
    steps = region.code.report.steps
    assert sum("[64, 64, 3, 3]" in step for step in steps) == 2
    assert not any("slice" in step or "concat" in step for step in steps)
    arrays = b.arrays()
    for want, got in zip(run(graph, arrays, np.float64), region(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_the_estimates_decide_and_are_said() -> None:
    report = Report()
    _, graph = grouped()
    assert split(graph, report=report) is not graph
    _, small = grouped(32, size=4)
    assert split(small, report=report) is small
    assert [d.choice for d in report.decisions] == ["groups apart", "groups as one"]
    assert "estimated kilocycles: apart" in report.decisions[0].reason


@pytest.mark.parametrize(
    "other",
    [
        {"kernel": 5},
        {"stride": (2, 2)},
        {"channels": 120, "groups": 2},  # 60 channels a group are no whole blocks
        {"channels": 128, "groups": 8},
    ],
    ids=["5x5", "stride 2", "groups that share blocks", "many groups"],
)
def test_others_stay_as_they_are(other: dict[str, Any]) -> None:
    _, graph = grouped(**other)
    assert split(graph) is graph


def test_what_asks_for_no_winograd_or_adds_a_residual_stays_as_it_is() -> None:
    _, graph = grouped()
    assert split(graph, "direct") is graph
    b = Builder([1, 128, 12, 12])
    y = b.add(Conv2d, "x0", b.weight(128, 64, 3, 3), groups=2, padding=(1, 1, 1, 1))
    added = b.add(Binary, y, "x0", kind="add")
    residual = b.graph(b.add(Conv2d, added, b.weight(8, 128, 1, 1)))
    assert split(residual) is residual
