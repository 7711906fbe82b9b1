"""Convolutions whose taps see mostly padding: computed tap by tap, where that is estimated to pay."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy.backend import load
from convoy.graph.ops import Binary, Conv2d, Unary
from convoy.graph.reference import run
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.conv2d.seen_taps import list_taps
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import host


def wide(b: Builder, x: str = "x0", dilation: int = 6, **more: int) -> str:
    """A 3x3 whose padding is its dilation."""
    groups, stride, channels = more.get("groups", 1), more.get("stride", 1), b.tensors[x].shape[1]
    return b.add(
        Conv2d, x, b.weight(channels, channels // groups, 3, 3), b.weight(channels),
        padding=(dilation,) * 4, dilation=(dilation,) * 2, groups=groups, stride=(stride,) * 2,
    )  # fmt: skip


def algorithms(b: Builder, *outputs: str) -> list[str]:
    report = Report()
    make_plan(b.graph(*outputs), host(), Options(), report)
    return [d.choice for d in report.decisions if d.node.startswith("conv2d")]


def test_taps_and_the_outputs_that_see_the_map_through_them() -> None:
    b = Builder([1, 64, 8, 8])
    graph = b.graph(wide(b))
    (node,) = graph.nodes
    assert isinstance(node, Conv2d)
    found = {(t.row, t.column): (t.rows, t.columns) for t in list_taps(node, graph)}
    first, all_, last = range(6, 8), range(8), range(2)
    assert found == {(r, s): (rows, columns) for r, rows in enumerate((first, all_, last))
                     for s, columns in enumerate((first, all_, last))}  # fmt: skip
    assert list(found)[-1] == (1, 1)


def test_no_taps_where_none_sees_the_map_from_everywhere() -> None:
    b = Builder([1, 64, 8, 8])
    node_graph = b.graph(b.add(Conv2d, "x0", b.weight(64, 64, 2, 2), padding=(4, 4, 4, 4), dilation=(8, 8)))
    assert list_taps(node_graph.nodes[0], node_graph) == ()  # type: ignore[arg-type]


@pytest.mark.slow
def test_taps_that_see_mostly_padding_are_computed_one_by_one() -> None:
    # an epilogue of all kinds, groups that share blocks, a stride; against the definition
    b = Builder([1, 120, 13, 16], [1, 120, 13, 16])
    y = b.add(Binary, wide(b, dilation=12), "x1", kind="add")
    plain = b.add(Unary, y, kind="relu")
    grouped = b.add(Unary, wide(b, plain, dilation=11, groups=2), kind="hardswish")
    strided = wide(b, grouped, dilation=12, stride=2)
    graph = b.graph(plain, strided)
    assert algorithms(b, plain, strided) == ["tap by tap"] * 3
    arrays = b.arrays()
    for got, want in zip(load(graph)(*arrays), run(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_taps_that_see_mostly_the_map_are_computed_together() -> None:
    b = Builder([1, 64, 28, 28])
    assert "tap by tap" not in algorithms(b, wide(b, dilation=2))


def test_x_has_no_halo_for_padding_that_nobody_reads() -> None:
    b = Builder([1, 64, 13, 16])
    plan = make_plan(b.graph(wide(b, b.add(Unary, "x0", kind="relu"), dilation=12)), host(), Options())
    steps = [step for step in plan.steps if isinstance(step, DirectConv)]
    assert len(steps) == 10  # the bias, and nine taps
    assert {step.x.row for step in steps} == {16 * host().lanes}
    assert [step.adds for step in steps] == [False] + 9 * [True]
    # each has its part of the estimate
    whole = steps[-1]
    pixels = whole.y.height * whole.y.width
    assert np.allclose([s.cycles / whole.cycles for s in steps[1:]],
                       [s.y.height * s.y.width / pixels for s in steps[1:]])  # fmt: skip
