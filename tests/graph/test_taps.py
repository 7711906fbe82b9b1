"""Taps that see only padding: cut off, or left where one output sees the map through them."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy.backend import load
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Pair, Sides
from convoy.graph.reference import run
from convoy.graph.taps import drop_unseen_taps
from convoy.graph.verify import verify


def conv(size: Pair, kernel: Pair, padding: Sides, dilation: Pair, stride: Pair = (1, 1)) -> Builder:
    b = Builder([1, 6, *size])
    b.add(Conv2d, "x0", b.weight(5, 6, *kernel), padding=padding, dilation=dilation, stride=stride)
    return b


def cut(b: Builder) -> Graph:
    """The graph with fewer taps, which is valid and has the same values, in the reference and compiled."""
    before = b.graph("t0")
    after = drop_unseen_taps(before)
    verify(after)
    arrays = b.arrays()
    (want,) = run(before, arrays)
    np.testing.assert_allclose(run(after, arrays)[0], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(load(before)(*arrays)[0], want, rtol=1e-4, atol=1e-5)
    return after


def kernel_and_padding(graph: Graph) -> tuple[tuple[int, ...], Sides]:
    (node,) = graph.nodes
    assert isinstance(node, Conv2d)
    return graph.shape(node.inputs[1])[2:], node.padding


def test_a_dilation_as_wide_as_the_map_leaves_a_pointwise_convolution() -> None:
    # conv2d 3x3, dilation 7, padding 7, on 7x7  =>  conv2d 1x1
    after = cut(conv((7, 7), (3, 3), (7, 7, 7, 7), (7, 7)))
    assert kernel_and_padding(after) == ((1, 1), (0, 0, 0, 0))
    assert len(after.constants) == 1


def test_a_dilation_one_less_keeps_all_taps() -> None:
    # the corners see one pixel each
    b = conv((7, 7), (3, 3), (6, 6, 6, 6), (6, 6))
    assert cut(b).nodes == b.graph("t0").nodes


@pytest.mark.parametrize(
    ("size", "kernel", "padding", "dilation", "stride", "expected"),
    [
        pytest.param((5, 30), (3, 3), (6, 6, 6, 6), (6, 6), (1, 1), ((1, 3), (0, 6, 0, 6)), id="rows only"),
        pytest.param(
            (4, 4), (5, 5), (4, 4, 4, 4), (2, 2), (1, 1), ((3, 3), (2, 2, 2, 2)), id="outermost taps"
        ),
        pytest.param(
            (4, 4), (3, 3), (6, 6, 4, 4), (4, 4), (1, 1), ((2, 2), (2, 2, 4, 4)), id="one side only"
        ),
        pytest.param((6, 6), (3, 3), (8, 8, 8, 8), (8, 8), (2, 3), ((1, 1), (0, 0, 0, 0)), id="stride"),
        pytest.param((2, 2), (2, 2), (1, 1, 1, 1), (1, 1), (1, 1), ((2, 2), (1, 1, 1, 1)), id="all seen"),
        pytest.param(
            (2, 2), (1, 1), (3, 3, 3, 3), (1, 1), (1, 1), ((1, 1), (3, 3, 3, 3)), id="one tap stays"
        ),
        pytest.param((2, 2), (3, 3), (12, 12, 10, 10), (10, 10), (9, 9), None, id="no padding below zero"),
    ],
)
def test_taps_that_see_only_padding_are_cut(
    size: Pair, kernel: Pair, padding: Sides, dilation: Pair, stride: Pair,
    expected: tuple[Pair, Sides] | None,
) -> None:  # fmt: skip
    found = kernel_and_padding(cut(conv(size, kernel, padding, dilation, stride)))
    if expected is not None:
        assert found == expected


def test_weights_that_are_not_finite_stay() -> None:
    # zero times infinity is NaN, in padding too
    b = conv((4, 4), (3, 3), (4, 4, 4, 4), (4, 4))
    b.constants["c0"][0, 0, 0, 0] = np.inf
    before = b.graph("t0")
    assert drop_unseen_taps(before) is before


def test_a_constant_that_others_read_stays() -> None:
    b = conv((4, 4), (3, 3), (4, 4, 4, 4), (4, 4))
    b.add(Conv2d, "x0", "c0", padding=(1, 1, 1, 1))
    after = drop_unseen_taps(b.graph("t0", "t1"))
    assert set(after.constants) == {"c0", "t0.taps"}
    assert set(after.tensors) == {"x0", "t0", "t1", "c0", "t0.taps"}


def test_a_region_counts_the_flops_of_the_network() -> None:
    # so that its share of a model's is the share of its work
    b = conv((4, 4), (3, 3), (4, 4, 4, 4), (4, 4))
    assert load(b.graph("t0")).code.report.flops == 2 * 5 * 16 * 6 * 9
