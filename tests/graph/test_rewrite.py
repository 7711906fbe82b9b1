"""Idioms raised at graph level: each rule with a twin that must not fire."""

from __future__ import annotations

import math

import numpy as np
import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import (
    Binary,
    ChannelShuffle,
    Conv2d,
    ConvTranspose2d,
    MatMul,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Slice,
    Transpose,
    Unary,
)
from convoy.graph.rewrite import simplify
from graph.simplified import ops
from graph.simplified import simplified as simplified_graph


def simplified(b: Builder, *outputs: str) -> list[str]:
    """The ops left after simplify."""
    return ops(simplified_graph(b, *outputs))


def affine(b: Builder, x: str, scale: float, shift: float) -> str:
    return b.add(Binary, b.add(Binary, x, b.constant(scale), kind="mul"), b.constant(shift), kind="add")


def test_clip_of_affine_becomes_hardsigmoid() -> None:
    # clip(x · 0.2 + 0.5, 0, 1)  =>  hardsigmoid(x)
    b = Builder([1, 4, 3, 3])
    y = b.add(Unary, affine(b, "x0", 0.2, 0.5), kind="clip", a=0.0, b=1.0)
    assert simplified(b, y) == ["hardsigmoid"]


def test_clip_of_plain_input_stays_a_clip() -> None:
    # clip(x, 0, 1)  =>  clip(x, 0, 1)
    b = Builder([1, 4, 3, 3])
    assert simplified(b, b.add(Unary, "x0", kind="clip", a=0.0, b=1.0)) == ["clip"]


def test_relu6_over_six_becomes_hardsigmoid() -> None:
    # clip(x + 3, 0, 6) / 6  =>  hardsigmoid(x)
    b = Builder([1, 4, 3, 3])
    clip = b.add(Unary, b.add(Binary, "x0", b.constant(3.0), kind="add"), kind="clip", a=0.0, b=6.0)
    assert simplified(b, b.add(Binary, clip, b.constant(6.0), kind="div")) == ["hardsigmoid"]


def test_relu6_over_five_stays() -> None:
    # clip(x + 3, 0, 6) / 5 is no hardsigmoid: it reaches 1.2
    b = Builder([1, 4, 3, 3])
    clip = b.add(Unary, b.add(Binary, "x0", b.constant(3.0), kind="add"), kind="clip", a=0.0, b=6.0)
    assert simplified(b, b.add(Binary, clip, b.constant(5.0), kind="div")) == ["add", "clip", "div"]


def test_division_by_zero_stays() -> None:
    # clip(x, 0, 6) / 0  =>  clip(x, 0, 6) / 0
    b = Builder([1, 4, 5, 5])
    clip = b.add(Unary, "x0", kind="clip", a=0.0, b=6.0)
    assert simplified(b, b.add(Binary, clip, b.constant(0.0), kind="div")) == ["clip", "div"]


@pytest.mark.parametrize("order", ["gate last", "divided last"])
def test_gated_relu6_becomes_hardswish(order: str) -> None:
    # x · (clip(x + 3, 0, 6) / 6)  and  (x · clip(x + 3, 0, 6)) / 6  =>  hardswish(x)
    b = Builder([1, 4, 3, 3])
    clip = b.add(Unary, b.add(Binary, "x0", b.constant(3.0), kind="add"), kind="clip", a=0.0, b=6.0)
    if order == "gate last":
        y = b.add(Binary, "x0", b.add(Binary, clip, b.constant(6.0), kind="div"), kind="mul")
    else:
        y = b.add(Binary, b.add(Binary, "x0", clip, kind="mul"), b.constant(6.0), kind="div")
    assert simplified(b, y) == ["hardswish"]


@pytest.mark.parametrize("order", ["gate last", "divided last"])
def test_hardswish_of_a_line_keeps_the_line(order: str) -> None:
    # hardswish(2x + 1), whatever the clip is written of  =>  2x + 1, hardswish
    b = Builder([1, 4, 3, 3])
    x = affine(b, "x0", 2.0, 1.0)
    clip = b.add(Unary, b.add(Binary, x, b.constant(3.0), kind="add"), kind="clip", a=0.0, b=6.0)
    if order == "gate last":
        y = b.add(Binary, x, b.add(Binary, clip, b.constant(6.0), kind="div"), kind="mul")
    else:
        y = b.add(Binary, b.add(Binary, x, clip, kind="mul"), b.constant(6.0), kind="div")
    assert simplified(b, y)[-1] == "hardswish"
    assert not {"hardsigmoid", "clip"} & set(simplified(b, y))


def test_gate_of_another_line_stays() -> None:
    # (2x + 1) · hardsigmoid(x)  =>  unchanged
    b = Builder([1, 4, 3, 3])
    gate = b.add(Unary, "x0", kind="hardsigmoid", a=1 / 6, b=0.5)
    assert "hardswish" not in simplified(b, b.add(Binary, affine(b, "x0", 2.0, 1.0), gate, kind="mul"))


def test_gate_of_another_tensor_stays() -> None:
    # z · hardsigmoid(x)  =>  unchanged
    b = Builder([1, 4, 3, 3], [1, 4, 3, 3])
    gate = b.add(Unary, "x0", kind="hardsigmoid", a=1 / 6, b=0.5)
    assert simplified(b, b.add(Binary, "x1", gate, kind="mul")) == ["hardsigmoid", "mul"]


def test_product_with_own_sigmoid_becomes_silu() -> None:
    # x · sigmoid(x)  =>  silu(x)
    b = Builder([1, 4, 3, 3])
    assert simplified(b, b.add(Binary, b.add(Unary, "x0", kind="sigmoid"), "x0", kind="mul")) == ["silu"]


def test_half_times_one_plus_erf_becomes_gelu() -> None:
    # (x/2) · (1 + erf(x/√2))  =>  gelu(x)
    b = Builder([1, 4, 3, 3])
    curve = b.add(Unary, b.add(Binary, "x0", b.constant(2**0.5), kind="div"), kind="erf")
    late = b.add(Binary, curve, b.constant(1.0), kind="add")
    half = b.add(Binary, "x0", b.constant(0.5), kind="mul")
    assert simplified(b, b.add(Binary, half, late, kind="mul")) == ["gelu"]


def below_zero(b: Builder, form: str, x: str = "x0") -> str:
    """exp(x) - 1 below zero, there or negative, and 0 above."""
    power, one, zero = b.add(Unary, x, kind="exp"), b.constant(1.0), b.constant(0.0)
    if form == "min":
        return b.add(Binary, zero, b.add(Binary, power, one, kind="sub"), kind="min")
    difference = b.add(Binary, one, power, kind="sub")
    return (
        b.add(Unary, difference, kind="relu")
        if form == "relu"
        else b.add(Binary, difference, zero, kind="max")
    )


@pytest.mark.parametrize(("form", "slope"), [("relu", -0.7), ("max", -1.0), ("min", 0.7), ("min", 1.0)])
@pytest.mark.parametrize("x_last", [True, False])
def test_exponential_below_zero_becomes_elu(form: str, slope: float, x_last: bool) -> None:
    # -a · relu(1 - exp(x)) + relu(x),  a · min(0, exp(x) - 1) + relu(x)  =>  elu(x; a)
    b = Builder([1, 4, 3, 3])
    low = b.add(Binary, b.constant(slope), below_zero(b, form), kind="mul")
    operands = (low, b.add(Unary, "x0", kind="relu"))
    y = b.add(Binary, *(operands if x_last else operands[::-1]), kind="add")
    assert simplified(b, y) == ["elu"]
    (node,) = simplify(b.graph(y)).nodes
    assert isinstance(node, Unary)
    assert node.a == pytest.approx(abs(slope))


def test_selu_is_an_elu_and_its_scale() -> None:
    b = Builder([1, 4, 3, 3])
    low = b.add(Binary, b.constant(-1.6732632), below_zero(b, "relu"), kind="mul")
    y = b.add(Binary, low, b.add(Unary, "x0", kind="relu"), kind="add")
    assert simplified(b, b.add(Binary, b.constant(1.050701), y, kind="mul")) == ["elu", "mul"]


NO_ELU = {
    "relu of another tensor": lambda b: (below_zero(b, "relu"), b.add(Unary, "x1", kind="relu")),
    "twice the relu": lambda b: (
        below_zero(b, "relu"),
        b.add(Binary, b.constant(2.0), b.add(Unary, "x0", kind="relu"), kind="mul"),
    ),
    "below one": lambda b: (below_zero(b, "relu"), b.add(Unary, "x0", kind="clip", a=0.0, b=1.0)),
    "exponential of another": lambda b: (below_zero(b, "relu", "x1"), b.add(Unary, "x0", kind="relu")),
    "bound elsewhere": lambda b: (
        b.add(Binary, below_zero(b, "max"), b.constant(0.5), kind="max"),
        b.add(Unary, "x0", kind="relu"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", NO_ELU)
def test_what_is_no_elu_stays(case: str) -> None:
    b = Builder([1, 4, 3, 3], [1, 4, 3, 3])
    low, high = NO_ELU[case](b)
    y = b.add(Binary, b.add(Binary, b.constant(-0.7), low, kind="mul"), high, kind="add")
    assert "elu" not in simplified(b, b.add(Binary, y, "x1", kind="add"))


def softplus(b: Builder, form: str, x: str = "x0") -> str:
    one = b.constant(1.0)
    if form == "op":
        return b.add(Unary, x, kind="softplus")
    if form == "as TVM's frontends write it":
        return b.add(Unary, b.add(Binary, one, b.add(Unary, x, kind="exp"), kind="add"), kind="log")
    power = b.add(Unary, b.add(Unary, b.add(Unary, x, kind="abs"), kind="neg"), kind="exp")
    late = b.add(Unary, b.add(Binary, power, one, kind="add"), kind="log")
    return b.add(Binary, b.add(Unary, x, kind="relu"), late, kind="add")


FORMS = ("op", "as TVM's frontends write it", "without overflow")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("x_last", [True, False])
def test_product_with_tanh_of_softplus_becomes_mish(form: str, x_last: bool) -> None:
    # x · tanh(log(1 + exp(x)))  =>  mish(x)
    b = Builder([1, 4, 3, 3])
    operands = (b.add(Unary, softplus(b, form), kind="tanh"), "x0")
    assert simplified(b, b.add(Binary, *(operands if x_last else operands[::-1]), kind="mul")) == ["mish"]


@pytest.mark.parametrize("form", FORMS)
def test_softplus_of_another_tensor_makes_no_mish(form: str) -> None:
    b = Builder([1, 4, 3, 3], [1, 4, 3, 3])
    curve = b.add(Unary, softplus(b, form, "x1"), kind="tanh")
    assert "mish" not in simplified(b, b.add(Binary, "x0", curve, kind="mul"))


def test_log_of_two_and_an_exponential_makes_no_mish() -> None:
    b = Builder([1, 4, 3, 3])
    above = b.add(Binary, b.constant(2.0), b.add(Unary, "x0", kind="exp"), kind="add")
    curve = b.add(Unary, b.add(Unary, above, kind="log"), kind="tanh")
    assert "mish" not in simplified(b, b.add(Binary, "x0", curve, kind="mul"))


@pytest.mark.parametrize("factor", [0.044715, 0.05])
def test_tanh_of_its_cubic_becomes_gelu_tanh(factor: float) -> None:
    # x · (1 + tanh(√(2/π)·(x + 0.044715·x³))) · 0.5  =>  gelu_tanh(x);  another cubic stays
    b = Builder([1, 4, 3, 3])
    cube = b.add(Binary, "x0", b.constant(3.0), kind="pow")
    line = b.add(Binary, "x0", b.add(Binary, cube, b.constant(factor), kind="mul"), kind="add")
    scaled = b.add(Binary, line, b.constant((2 / np.pi) ** 0.5), kind="mul")
    late = b.add(Binary, b.add(Unary, scaled, kind="tanh"), b.constant(1.0), kind="add")
    y = b.add(Binary, b.add(Binary, "x0", late, kind="mul"), b.constant(0.5), kind="mul")
    assert (simplified(b, y) == ["gelu_tanh"]) == (factor == 0.044715)


def test_erf_of_another_tensor_is_no_gelu() -> None:
    # (z/2) · (1 + erf(x/√2))  =>  unchanged
    b = Builder([1, 4, 3, 3], [1, 4, 3, 3])
    curve = b.add(Unary, b.add(Binary, "x0", b.constant(2**0.5), kind="div"), kind="erf")
    late = b.add(Binary, curve, b.constant(1.0), kind="add")
    half = b.add(Binary, "x1", b.constant(0.5), kind="mul")
    assert simplified(b, b.add(Binary, half, late, kind="mul")) == ["div", "erf", "add", "mul", "mul"]


def test_gelu_that_gains_an_axis_stays() -> None:
    # the 1 in 1 + erf has five axes  =>  so has the result, and gelu(x) has four
    b = Builder([1, 4, 3, 3])
    curve = b.add(Unary, b.add(Binary, "x0", b.constant(2**0.5), kind="div"), kind="erf")
    late = b.add(Binary, curve, b.constant(np.ones((1, 1, 1, 1, 1))), kind="add")
    half = b.add(Binary, "x0", b.constant(0.5), kind="mul")
    assert "gelu" not in simplified(b, b.add(Binary, half, late, kind="mul"))


def shuffle(b: Builder, groups: int, perm: tuple[int, ...]) -> str:
    split = b.add(Reshape, "x0", shape=[1, groups, 12 // groups, 3, 3])
    return b.add(Reshape, b.add(Transpose, split, perm=perm), shape=[1, 12, 3, 3])


def test_reshape_swap_reshape_becomes_channel_shuffle() -> None:
    # reshape [1,G,K,H,W] -> swap -> reshape  =>  channel_shuffle(G)
    b = Builder([1, 12, 3, 3])
    after = simplify(b.graph(shuffle(b, 3, (0, 2, 1, 3, 4))))
    assert [(type(n), n.groups) for n in after.nodes if isinstance(n, ChannelShuffle)] == [
        (ChannelShuffle, 3)
    ]
    assert simplified(b, b.nodes[-1].output) == ["channel_shuffle"]


def test_swap_of_rows_stays() -> None:
    # a transpose of H and W between the reshapes is no shuffle
    b = Builder([1, 12, 3, 3])
    assert simplified(b, shuffle(b, 3, (0, 1, 2, 4, 3))) == ["reshape", "transpose", "reshape"]


@pytest.mark.parametrize(
    ("shape", "split"),
    [([2, 12, 3, 3], [2, 3, 4, 3, 3]), ([1, 12, 3, 3], [2, 3, 2, 3, 3])],
    ids=["two images", "axis 0 split too"],
)
def test_shuffle_of_something_else_stays(shape: list[int], split: list[int]) -> None:
    # no groups of the channels of one image
    b = Builder(shape)
    swapped = b.add(Transpose, b.add(Reshape, "x0", shape=split), perm=(0, 2, 1, 3, 4))
    assert simplified(b, b.add(Reshape, swapped, shape=shape)) == ["reshape", "transpose", "reshape"]


def test_zero_pad_moves_into_the_conv() -> None:
    # conv2d(pad(x, 0))  =>  conv2d(x, padding)
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (1, 0), (2, 1)))
    assert simplified(b, b.add(Conv2d, padded, b.weight(4, 3, 3, 3))) == ["conv2d"]


@pytest.mark.parametrize("given", [{"value": 1.0}, {"mode": "reflect"}])
def test_other_pad_stays(given: dict[str, object]) -> None:
    # conv2d(pad(x, 1.0))  =>  unchanged: a convolution pads with zeros
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (1, 1), (1, 1)), **given)
    assert simplified(b, b.add(Conv2d, padded, b.weight(4, 3, 3, 3))) == ["pad", "conv2d"]


def test_zero_pad_moves_into_an_average_that_counts_it() -> None:
    # avg_pool(pad(x, 0), count_include_pad)  =>  avg_pool(x, padding, count_include_pad)
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (1, 1), (1, 1)))
    pool = b.add(Pool2d, padded, kind="avg", kernel=(3, 3), count_include_pad=True)
    assert simplified(b, pool) == ["avg_pool2d"]


def test_infinite_pad_moves_into_a_maximum() -> None:
    # max_pool(pad(x, -inf))  =>  max_pool(x, padding)
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (1, 1), (1, 1)), value=-math.inf)
    assert simplified(b, b.add(Pool2d, padded, kind="max", kernel=(3, 3))) == ["max_pool2d"]


def test_infinite_pad_that_fills_a_window_stays() -> None:
    # max_pool(pad(x, -inf))  =>  unchanged: the first window sees no pixel, and its maximum is -inf
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (3, 0), (0, 0)), value=-math.inf)
    assert simplified(b, b.add(Pool2d, padded, kind="max", kernel=(3, 3))) == ["pad", "max_pool2d"]


def test_a_slice_of_padding_is_less_padding() -> None:
    # conv2d(slice(pad(x)))  =>  conv2d(x, padding)
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (2, 2), (0, 0)))
    cut = b.add(Slice, padded, axis=2, begin=1, end=9)
    assert simplified(b, b.add(Conv2d, cut, b.weight(4, 3, 3, 3))) == ["conv2d"]


def test_a_slice_of_more_than_padding_stays() -> None:
    # slice(pad(x))  =>  unchanged: a row of x is cut off
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (2, 2), (0, 0)))
    cut = b.add(Slice, padded, axis=2, begin=3, end=9)
    assert simplified(b, b.add(Conv2d, cut, b.weight(4, 3, 3, 3))) == ["pad", "slice", "conv2d"]


def test_padding_of_a_row_moves_into_the_conv() -> None:
    # conv2d(reshape(pad [1, C, W]))  =>  conv2d(reshape, padding)
    b = Builder([1, 3, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (2, 1)))
    row = b.add(Reshape, padded, shape=[1, 3, 1, 9])
    assert simplified(b, b.add(Conv2d, row, b.weight(4, 3, 1, 3))) == ["reshape", "conv2d"]


def test_zero_pad_before_a_maximum_stays() -> None:
    # max_pool(pad(x, 0))  =>  unchanged: the zeros take part
    b = Builder([1, 3, 6, 6])
    padded = b.add(Pad, "x0", widths=((0, 0), (0, 0), (1, 1), (1, 1)))
    assert simplified(b, b.add(Pool2d, padded, kind="max", kernel=(3, 3))) == ["pad", "max_pool2d"]


def test_reshapes_and_transposes_merge() -> None:
    # transpose(transpose(x))  =>  transpose(x);  reshape(reshape(x))  =>  reshape(x)
    b = Builder([1, 2, 3, 4])
    t = b.add(Transpose, b.add(Transpose, "x0", perm=(0, 2, 3, 1)), perm=(0, 2, 3, 1))
    r = b.add(Reshape, b.add(Reshape, "x0", shape=[1, 24]), shape=[1, 4, 6])
    assert simplified(b, t, r) == ["transpose", "reshape"]


def test_elementwise_ops_behind_a_reshape_to_one_row_come_before_it() -> None:
    # conv -> reshape [1,C,L] -> relu -> reshape [1,C,1,L] -> conv, as of two conv1d  =>  no reshape
    b = Builder([1, 2, 1, 6])
    relu = b.add(Unary, b.add(Reshape, "x0", shape=[1, 2, 6]), kind="relu")
    back = b.add(Reshape, relu, shape=[1, 2, 1, 6])
    assert simplified(b, b.add(Conv2d, back, b.weight(2, 2, 1, 3))) == ["relu", "conv2d"]


def test_what_meets_a_reshape_to_one_row_gets_a_row_too() -> None:
    # reshape [1,C,L] + bias [C,1] + x1 + [1,C,L]  =>  all of it on [1,C,1,L]
    b = Builder([1, 2, 1, 6], [1, 2, 6])
    y = b.add(Reshape, "x0", shape=[1, 2, 6])
    for other in (b.constant([[1.0], [2.0]]), "x1", b.constant(np.ones((1, 2, 6)))):
        y = b.add(Binary, y, other, kind="add")
    assert simplified(b, y) == ["add", "reshape", "add", "add", "reshape"]


def test_what_is_broadcast_to_a_reshape_to_one_row_is_broadcast_to_the_row() -> None:
    # conv -> reshape [1,C,L] -> times [1,1,1], plus [C,1], plus [L], computed  =>  conv's epilogue
    b = Builder([1, 2, 1, 6], [1, 1, 1], [2, 1], [6])
    y = b.add(Reshape, b.add(Conv2d, "x0", b.weight(2, 2, 1, 1)), shape=[1, 2, 6])
    for other, kind in (("x1", "mul"), ("x2", "add"), ("x3", "add")):
        y = b.add(Binary, y, other, kind=kind)
    assert simplified(b, y) == ["conv2d", "reshape", "mul", "reshape", "add", "add", "reshape"]


def test_a_reshape_to_one_row_that_is_broadcast_itself_stays() -> None:
    b = Builder([1, 2, 1, 1], [1, 2, 6])
    y = b.add(Binary, b.add(Reshape, "x0", shape=[1, 2, 1]), "x1", kind="mul")
    assert simplified(b, y) == ["reshape", "mul"]


def test_a_reshape_that_others_read_or_to_another_shape_stays() -> None:
    # its value is read as [1,C,L], too  =>  it is computed once; of more than one row  =>  as it was
    b = Builder([1, 2, 1, 6])
    relu = b.add(Unary, b.add(Reshape, "x0", shape=[1, 2, 6]), kind="relu")
    back = b.add(Reshape, relu, shape=[1, 2, 6, 1])
    assert simplified(b, relu, back) == ["relu", "reshape", "reshape"]
    b = Builder([1, 2, 2, 3])
    relu = b.add(Unary, b.add(Reshape, "x0", shape=[1, 2, 6]), kind="relu")
    assert simplified(b, b.add(Reshape, relu, shape=[1, 2, 2, 3])) == ["reshape", "relu", "reshape"]


def test_an_activation_behind_a_reshape_of_a_convolution_ends_the_convolution() -> None:
    # gelu(reshape(conv2d)), as where pixels become rows  =>  reshape(gelu(conv2d))
    b = Builder([1, 2, 3, 4])
    rows = b.add(Reshape, b.add(Conv2d, "x0", b.weight(5, 2, 1, 1)), shape=[1, 5, 12])
    y = b.add(Transpose, b.add(Unary, rows, kind="gelu"), perm=(0, 2, 1))
    assert simplified(b, y) == ["conv2d", "gelu", "reshape", "transpose"]
    assert simplified(b, y, rows) == ["conv2d", "reshape", "gelu", "transpose"]  # which others read
    b = Builder([1, 2, 3, 4])
    rows = b.add(Reshape, b.add(Pool2d, "x0", kind="max", kernel=(1, 1)), shape=[1, 2, 12])
    assert simplified(b, b.add(Unary, rows, kind="gelu"))[-2:] == ["reshape", "gelu"]


def test_a_bias_a_channel_is_merged() -> None:
    # conv2d + [C,1,1] + number -> relu  =>  conv2d with a bias -> relu
    b = Builder([1, 3, 5, 5])
    y = b.add(Conv2d, "x0", b.weight(4, 3, 3, 3), b.weight(4))
    y = b.add(Binary, b.add(Binary, y, b.weight(4, 1, 1), kind="add"), b.constant(0.5), kind="add")
    assert simplified(b, b.add(Unary, y, kind="relu")) == ["conv2d", "relu"]
    b = Builder([1, 3, 7])
    assert simplified(b, b.add(Binary, b.add(MatMul, "x0", b.weight(7, 5)), b.weight(5), kind="add")) == [
        "matmul"
    ]


def test_a_bias_that_is_none_or_read_between_stays() -> None:
    # a number for each row; a result that is an output, too; one behind an activation
    b = Builder([1, 3, 5, 5])
    y = b.add(Conv2d, "x0", b.weight(4, 3, 3, 3))
    assert simplified(b, b.add(Binary, y, b.weight(3, 1), kind="add")) == ["conv2d", "add"]
    assert simplified(b, y, b.add(Binary, y, b.weight(4, 1, 1), kind="add")) == ["conv2d", "add"]
    relu = b.add(Unary, y, kind="relu")
    assert simplified(b, b.add(Binary, relu, b.weight(4, 1, 1), kind="add")) == ["conv2d", "relu", "add"]


def test_a_bias_whose_pattern_is_switched_off_stays() -> None:
    b = Builder([1, 3, 5, 5])
    y = b.add(Binary, b.add(Conv2d, "x0", b.weight(4, 3, 3, 3)), b.weight(4, 1, 1), kind="add")
    graph = b.graph(y)
    assert len(simplify(graph, {"convoy.conv2d_bias"}).nodes) == 2
    assert len(simplify(graph, {"convoy.conv2d_bias_relu"}).nodes) == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_a_scale_a_channel_is_merged(groups: int) -> None:
    # (anchor + bias) · [C,1,1] + [C,1,1]  =>  the anchor
    for anchor, weight in ((Conv2d, (4, 4 // groups, 3, 3)), (ConvTranspose2d, (4, 4 // groups, 3, 3))):
        b = Builder([1, 4, 5, 5])
        y = b.add(anchor, "x0", b.weight(*weight), b.weight(4), groups=groups)
        y = b.add(Binary, b.add(Binary, y, b.weight(4, 1, 1), kind="mul"), b.weight(4, 1, 1), kind="add")
        assert len(simplified(b, y)) == 1
    b = Builder([1, 3, 7])
    y = b.add(Binary, b.constant(3.0), b.add(MatMul, "x0", b.weight(7, 5)), kind="mul")
    assert simplified(b, y) == ["matmul"]


def test_a_scale_that_begins_an_idiom_is_not_merged() -> None:
    # clip(conv2d · 0.2 + 0.5, 0, 1)  =>  hardsigmoid(conv2d)
    b = Builder([1, 3, 5, 5])
    line = affine(b, b.add(Conv2d, "x0", b.weight(4, 3, 3, 3)), 0.2, 0.5)
    assert simplified(b, b.add(Unary, line, kind="clip", a=0.0, b=1.0)) == ["conv2d", "hardsigmoid"]


def test_a_scale_that_leaves_no_numbers_or_is_read_between_stays() -> None:
    b = Builder([1, 3, 5, 5])
    y = b.add(Conv2d, "x0", b.weight(4, 3, 3, 3))
    assert simplified(b, y, b.add(Binary, y, b.weight(4, 1, 1), kind="mul")) == ["conv2d", "mul"]
    for number in (1e-38, 0.0, 3e38):
        b = Builder([1, 3, 5, 5])
        y = b.add(Conv2d, "x0", b.constant(np.full((4, 3, 3, 3), 4.0 if number > 1 else 0.01)))
        assert simplified(b, b.add(Binary, y, b.constant(number), kind="mul")) == ["conv2d", "mul"]


def test_an_output_keeps_its_name() -> None:
    # an identity reshape that is an output stays
    b = Builder([1, 4])
    graph: Graph = b.graph(b.add(Reshape, "x0", shape=[1, 4]))
    assert simplify(graph).outputs == graph.outputs
    assert len(simplify(graph).nodes) == 1


@pytest.mark.parametrize(
    ("kind", "seen", "axes", "found"),
    [
        ("max", (1, 1, 4, 3, 3), (1, 2, 3, 4), ["reduce", "reshape"]),
        ("min", (1, 36), (1,), ["reduce", "reshape"]),
        ("max", (1, 1, 4, 3, 3), (1, 2), ["reshape", "reduce"]),  # not of all there is
        ("max", (4, 9), (1,), ["reshape", "reduce"]),  # of each of four
        ("mean", (1, 36), (1,), ["reshape", "reduce"]),  # another order of sums
    ],
)
def test_extremes_of_all_there_is_are_found_before_a_reshape(
    kind: str, seen: tuple[int, ...], axes: tuple[int, ...], found: list[str]
) -> None:
    # max(reshape(x))  =>  reshape(max(x))
    b = Builder([1, 4, 3, 3], batch=1)
    x = b.add(Reshape, b.add(Unary, "x0", kind="relu"), shape=seen)
    assert simplified(b, b.add(Reduce, x, kind=kind, axes=axes))[1:] == found


def test_an_extreme_of_one_axis_has_no_other_to_reduce() -> None:
    b = Builder([1])
    x = b.add(Reshape, b.add(Unary, "x0", kind="relu"), shape=(1, 1, 1))
    assert simplified(b, b.add(Reduce, x, kind="max", axes=(1, 2)))[1:] == ["reshape", "reduce"]
