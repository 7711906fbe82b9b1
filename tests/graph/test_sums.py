"""Convolutions of one input whose results are added become one, with twins that must not."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph.ops import Binary, Conv2d, Unary
from convoy.graph.rewrite import simplify
from graph.simplified import ops, simplified


def plus(b: Builder, *terms: str) -> str:
    first, *rest = terms
    for term in rest:
        first = b.add(Binary, first, term, kind="add")
    return first


def scaled(b: Builder, x: str, channels: int) -> str:
    """x · [C, 1, 1] + [C, 1, 1]: a batch norm."""
    mul = b.add(Binary, x, b.weight(channels, 1, 1), kind="mul")
    return b.add(Binary, mul, b.weight(channels, 1, 1), kind="add")


def conv(b: Builder, weight: tuple[int, ...], x: str = "x0", **given: object) -> str:
    return b.add(Conv2d, x, b.weight(*weight), b.weight(weight[0]), **given)


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_block_in_training_form_is_one_convolution(groups: int, order: tuple[int, ...]) -> None:
    # relu(conv3x3(x) + conv1x1(x) + batch_norm(x))  =>  relu(conv3x3(x))
    b = Builder([1, 6, 5, 7])
    terms = (
        conv(b, (6, 6 // groups, 3, 3), padding=(1, 1, 1, 1), groups=groups),
        conv(b, (6, 6 // groups, 1, 1), groups=groups),
        scaled(b, "x0", 6),
    )
    y = plus(b, *(terms[i] for i in order))
    assert ops(simplified(b, b.add(Unary, y, kind="relu"))) == ["conv2d", "relu"]


def test_a_residual_stays_one() -> None:
    # what is infinite in it meets infinities of the convolution; only what is scaled joins the weights
    b = Builder([1, 6, 5, 5])
    y = plus(b, "x0", conv(b, (6, 6, 3, 3), padding=(1, 1, 1, 1)), conv(b, (6, 6, 1, 1)))
    assert sorted(ops(simplified(b, y))) == ["add", "add", "conv2d", "conv2d"]
    b = Builder([1, 6, 5, 5])
    y = plus(b, conv(b, (6, 6, 3, 3), padding=(1, 1, 1, 1)), conv(b, (6, 6, 1, 1)), "x0")
    assert ops(simplified(b, y)) == ["conv2d", "add"]


def test_windows_hold_each_other_by_the_pixels_they_read() -> None:
    # strides, sides that are padded unequally, dilations: 3x1, 1x3, 2x2 by 2 in 3x3; 3x3 by 2 in 7x7
    b = Builder([1, 4, 9, 8])
    terms = (
        conv(b, (8, 4, 3, 3), padding=(1, 1, 1, 1), stride=(2, 2)),
        conv(b, (8, 4, 3, 1), padding=(1, 0, 1, 0), stride=(2, 2)),
        conv(b, (8, 4, 1, 3), padding=(0, 1, 0, 1), stride=(2, 2)),
        conv(b, (8, 4, 2, 2), padding=(1, 1, 1, 1), stride=(2, 2), dilation=(2, 2)),
    )
    assert ops(simplified(b, plus(b, *terms))) == ["conv2d"]
    for dilation, left in ((1, 1), (2, 1), (3, 1), (4, 3)):
        b = Builder([1, 4, 9, 8])
        around = (dilation,) * 4
        small = conv(b, (4, 1, 3, 3), padding=around, dilation=(dilation, dilation), groups=4)
        large = conv(b, (4, 1, 7, 7), padding=(3, 3, 3, 3), groups=4)
        assert len(simplified(b, plus(b, small, large)).nodes) == left


def test_groups_join_a_convolution_of_fewer() -> None:
    b = Builder([1, 8, 5, 5])
    terms = (
        conv(b, (12, 4, 3, 3), padding=(1, 1, 1, 1), groups=2),
        conv(b, (12, 2, 1, 1), groups=4),
    )
    assert ops(simplified(b, plus(b, *terms))) == ["conv2d"]


STAY = {
    "another input": lambda b: (conv(b, (4, 4, 1, 1)), conv(b, (4, 4, 1, 1), "x1")),
    "neither window holds the other": lambda b: (
        conv(b, (4, 4, 3, 1), padding=(1, 0, 1, 0)),
        conv(b, (4, 4, 1, 3), padding=(0, 1, 0, 1)),
    ),
    "more groups in the wide one": lambda b: (
        conv(b, (4, 1, 3, 3), padding=(1, 1, 1, 1), groups=4),
        conv(b, (4, 4, 1, 1)),
    ),
    "shifted": lambda b: (
        conv(b, (4, 4, 3, 3), padding=(0, 1, 2, 1)),
        conv(b, (4, 4, 3, 3), padding=(1, 1, 1, 1)),
    ),
    "another activation between": lambda b: (
        b.add(Unary, conv(b, (4, 4, 1, 1)), kind="relu"),
        conv(b, (4, 4, 1, 1)),
    ),
    "a scale for each row": lambda b: (
        conv(b, (4, 4, 1, 1)),
        b.add(Binary, "x0", b.weight(5, 1), kind="mul"),
    ),
    "no constant": lambda b: (conv(b, (4, 4, 1, 1)), b.add(Binary, "x0", "x1", kind="mul")),
}  # fmt: skip


@pytest.mark.parametrize("case", STAY)
def test_what_is_no_sum_of_one_input_stays(case: str) -> None:
    b = Builder([1, 4, 5, 5], [1, 4, 5, 5])
    y = plus(b, *STAY[case](b))
    nodes = len(b.graph(y).nodes)
    assert len(simplified(b, y).nodes) == nodes


def test_a_convolution_whose_result_is_read_elsewhere_stays() -> None:
    b = Builder([1, 4, 5, 5])
    x, y = conv(b, (4, 4, 1, 1)), conv(b, (4, 4, 1, 1))
    assert ops(simplified(b, x, plus(b, x, y))) == ["conv2d", "conv2d", "add"]


def test_a_convolution_of_what_another_computed_keeps_its_residual() -> None:
    # conv(y) + y · s, y = conv(x)  =>  two convolutions: y is no branch of x
    b = Builder([1, 4, 5, 5])
    y = conv(b, (4, 4, 1, 1))
    assert ops(simplified(b, plus(b, conv(b, (4, 4, 1, 1), y), scaled(b, y, 4)))) == ["conv2d", "conv2d"]


def test_a_sum_that_is_no_number_stays() -> None:
    b = Builder([1, 2, 3, 3])
    terms = [b.add(Conv2d, "x0", b.constant([[[[3e38]], [[1.0]]]])) for _ in range(2)]
    y = plus(b, *terms)
    before = b.graph(y)
    assert len(simplify(before).nodes) == len(before.nodes)


def test_a_long_row_of_sums_with_constants_is_no_branch() -> None:
    b = Builder([1, 4, 3, 3])
    y = "x0"
    for _ in range(1200):
        y = b.add(Binary, y, b.constant(1e-3), kind="add")
    y = plus(b, conv(b, (4, 4, 1, 1)), y)
    before = b.graph(y)
    assert len(simplify(before).nodes) == len(before.nodes)
