"""Winograd's algorithm along the rows: its matrices, and which convolutions get it."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Unary
from convoy.kernels.conv2d.candidates import list_candidates
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.conv2d.row_points import OUT, PAIRS, RowPoints
from convoy.kernels.conv2d.row_products import MultiplyRows, TransformRows
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import Target

TARGET = Target("avx512")


def first_layer(
    kernel: int = 7,
    stride: int = 2,
    channels: int = 3,
    out: int = 64,
    scale: float = 1,
    **attributes: object,
) -> Graph:
    b = Builder([1, channels, 112, 112])
    groups = int(attributes.get("groups", 1))  # type: ignore[call-overload]
    w = b.weight(out, channels // groups, kernel, kernel)
    b.constants[w] = b.constants[w] * np.float32(scale)
    pad = kernel // 2
    return b.graph(
        b.add(Conv2d, "x0", w, padding=(pad, pad, pad, pad), stride=(stride, stride), **attributes)
    )


def in_rows(graph: Graph, options: Options | None = None, target: Target = TARGET) -> bool:
    steps = make_plan(graph, target, options).steps
    (conv,) = [s for s in steps if isinstance(s, (DirectConv, MultiplyRows))]
    made = any(isinstance(s, TransformRows) for s in steps)
    assert made == isinstance(conv, MultiplyRows)
    return made


@pytest.mark.parametrize("taps", PAIRS)
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_points_multiply_to_a_correlation(taps: int, stride: int, lanes: int) -> None:
    random = np.random.default_rng(5)
    p = RowPoints(stride, taps)
    columns = taps * stride - stride + 1  # the last phases have a tap less
    x, w = random.standard_normal(stride * p.points), random.standard_normal(columns)

    cells = p.transform(lanes)
    v = np.zeros((stride, p.points))
    for k, value in enumerate(x):
        first = k % stride * 8 % cells.shape[1]
        v[k % stride] += value * cells[k, first : first + p.points]
    sums = (v * p.weights(w)).sum(axis=0)
    points = [sign * pair for pair in p.pairs for sign in (1, -1) if pair or sign > 0]
    y = [
        sum(s * point**r for s, point in zip(sums, points, strict=False)) + sums[-1] * (r == OUT - 1)
        for r in range(OUT)
    ]

    want = [x[stride * r : stride * r + columns] @ w for r in range(OUT)]
    assert y == pytest.approx(want, rel=1e-12)


def test_a_first_layer_is_multiplied_in_rows_and_reported_so() -> None:
    graph, report = first_layer(), Report()
    steps = make_plan(graph, TARGET, Options(threads=1), report).steps
    conv = next(s for s in steps if isinstance(s, MultiplyRows))
    assert conv.method == "winograd F(4, 4) in rows, 8x2 tiles"
    (decision,) = [d for d in report.decisions if d.step == "plan"]
    assert decision.choice == "winograd F(4, 4) in rows"
    assert in_rows(first_layer(kernel=5))  # of 3 columns and 2
    assert in_rows(first_layer(), target=Target("avx2"))


@pytest.mark.parametrize(
    "graph",
    [
        first_layer(kernel=3),
        first_layer(stride=1),
        first_layer(kernel=11, stride=4),  # its panels do not fit L1
        first_layer(channels=16),  # an input in blocks
        first_layer(out=16),
        first_layer(dilation=(2, 2)),
        first_layer(channels=4, groups=2),
        first_layer(scale=1e20),  # sums might overflow
        first_layer(scale=float("nan")),
    ],
    ids=["3x3", "stride 1", "11x11", "blocks", "one block", "dilated", "groups", "large", "not a number"],
)
def test_others_are_not(graph: Graph) -> None:
    assert not in_rows(graph)


def test_nor_where_direct_convolutions_are_asked_for() -> None:
    assert not in_rows(first_layer(), Options(accuracy="direct"))


@pytest.mark.parametrize(("made", "rows"), [(False, 3), (True, 3), (True, 7)])
def test_nor_where_another_convolution_made_the_input(made: bool, rows: int) -> None:
    # its map is in blocks, and copied to planes for many taps only
    b = Builder([1, 8 if made else 3, 112, 112])
    x = b.add(Unary, b.add(Conv2d, "x0", b.weight(3, 8, 1, 1)), kind="relu") if made else "x0"
    y = b.add(Conv2d, x, b.weight(64, 3, rows, 7), padding=(rows // 2, 3, rows // 2, 3), stride=(2, 2))
    found = any(isinstance(s, TransformRows) for s in make_plan(b.graph(y), TARGET).steps)
    assert found == (not made or rows == 7)


def test_a_search_compares_it_with_a_direct_convolution() -> None:
    graph = first_layer()
    (conv,) = [n for n in graph.nodes if isinstance(n, Conv2d)]
    candidates = list_candidates(conv, graph, TARGET, 1, Options(), blocked=False)
    assert candidates["estimated"].row_points is not None
    assert candidates["direct"].row_points is None
