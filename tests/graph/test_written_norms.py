"""Layer, RMS and group norms written out become one node; what is none stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from building import Builder
from convoy.graph.ops import Binary, GroupNorm, LayerNorm, Reduce, Reshape, Unary
from graph.simplified import ops, simplified


def centred(b: Builder, x: str, axes: tuple[int, ...] = (2,)) -> str:
    return b.add(Binary, x, b.add(Reduce, x, kind="mean", axes=axes), kind="sub")


def variance(b: Builder, x: str, axes: tuple[int, ...] = (2,), square: str = "square") -> str:
    return mean_square(b, centred(b, x, axes), axes, square)


def mean_square(b: Builder, x: str, axes: tuple[int, ...] = (2,), square: str = "square") -> str:
    squares = {
        "square": lambda: b.add(Unary, x, kind="square"),
        "mul": lambda: b.add(Binary, x, x, kind="mul"),
        "pow": lambda: b.add(Binary, x, b.constant(2.0), kind="pow"),
        "cube": lambda: b.add(Unary, b.add(Binary, x, b.constant(3.0), kind="pow"), kind="abs"),
    }
    return mean_of(b, squares[square](), axes)


def mean_of(b: Builder, squares: str, axes: tuple[int, ...] = (2,)) -> str:
    """Their mean + ε."""
    return b.add(Binary, b.add(Reduce, squares, kind="mean", axes=axes), b.constant(1e-3), kind="add")


ROOTS: dict[str, Callable[[Builder, str, str], str]] = {
    "x / sqrt": lambda b, x, v: b.add(Binary, x, b.add(Unary, v, kind="sqrt"), kind="div"),
    "x * rsqrt": lambda b, x, v: b.add(Binary, x, b.add(Unary, v, kind="rsqrt"), kind="mul"),
    "rsqrt * x": lambda b, x, v: b.add(Binary, b.add(Unary, v, kind="rsqrt"), x, kind="mul"),
    "x * (1 / sqrt)": lambda b, x, v: b.add(
        Binary, x, b.add(Binary, b.constant(1.0), b.add(Unary, v, kind="sqrt"), kind="div"), kind="mul"
    ),
    "x * reciprocal": lambda b, x, v: b.add(
        Binary, x, b.add(Unary, b.add(Unary, v, kind="sqrt"), kind="reciprocal"), kind="mul"
    ),
    "x / v ** 0.5": lambda b, x, v: b.add(
        Binary, x, b.add(Binary, v, b.constant(0.5), kind="pow"), kind="div"
    ),
    "x * v ** -0.5": lambda b, x, v: b.add(
        Binary, x, b.add(Binary, v, b.constant(-0.5), kind="pow"), kind="mul"
    ),
}


@pytest.mark.parametrize("square", ["square", "mul", "pow"])
@pytest.mark.parametrize("root", ROOTS)
def test_layer_norm_written_out_becomes_one_node(root: str, square: str) -> None:
    # (x - mean) / √(mean((x - mean)²) + ε) · gamma + beta  =>  layer_norm(x, gamma, beta)
    b = Builder([1, 5, 12])
    y = ROOTS[root](b, centred(b, "x0"), variance(b, "x0", square=square))
    y = b.add(Binary, b.add(Binary, b.weight(12), y, kind="mul"), b.weight(12), kind="add")
    (norm,) = simplified(b, y).nodes
    assert isinstance(norm, LayerNorm)
    assert (norm.axis, norm.epsilon, len(norm.inputs)) == (2, pytest.approx(1e-3), 3)


def test_layer_norm_as_a_batch_norm_becomes_one_node() -> None:
    # x·s + (beta - mean·s), s = rsqrt(variance + ε) · gamma  =>  layer_norm(x, gamma, beta)
    b = Builder([1, 5, 12])
    mean = b.add(Reduce, "x0", kind="mean", axes=(2,))
    scale = b.add(Binary, b.add(Unary, variance(b, "x0"), kind="rsqrt"), b.weight(12), kind="mul")
    shift = b.add(Binary, b.weight(12), b.add(Binary, mean, scale, kind="mul"), kind="sub")
    y = b.add(Binary, b.add(Binary, "x0", scale, kind="mul"), shift, kind="add")
    assert ops(simplified(b, y)) == ["layer_norm"]


@pytest.mark.parametrize("square", ["square", "mul", "pow"])
@pytest.mark.parametrize("root", ROOTS)
def test_rms_norm_written_out_becomes_one_node(root: str, square: str) -> None:
    # x / √(mean(x²) + ε) · gamma  =>  rms_norm(x, gamma)
    b = Builder([1, 5, 12])
    y = b.add(Binary, b.weight(12), ROOTS[root](b, "x0", mean_square(b, "x0", square=square)), kind="mul")
    (norm,) = simplified(b, y).nodes
    assert isinstance(norm, LayerNorm)
    assert (norm.axis, norm.epsilon, len(norm.inputs)) == (2, pytest.approx(1e-3), 2)
    assert (norm.centred, norm.pattern) == (False, "rms_norm")


OTHER_ROOTS: dict[str, Callable[[Builder], str]] = {
    "squares of another tensor": lambda b: ROOTS["x / sqrt"](b, "x0", mean_square(b, "x1")),
    "a product of two": lambda b: ROOTS["x * rsqrt"](
        b, "x0", mean_of(b, b.add(Binary, "x0", "x1", kind="mul"))
    ),
    "axes that are not the last": lambda b: ROOTS["x / sqrt"](b, "x0", mean_square(b, "x0", (1,))),
    "cubes": lambda b: ROOTS["x / sqrt"](b, "x0", mean_square(b, "x0", square="cube")),
    "times the root": lambda b: b.add(
        Binary, "x0", b.add(Unary, mean_square(b, "x0"), kind="sqrt"), kind="mul"
    ),
    "a sum": lambda b: ROOTS["x / sqrt"](
        b,
        "x0",
        b.add(
            Binary,
            b.add(Reduce, b.add(Unary, "x0", kind="square"), kind="sum", axes=(2,)),
            b.constant(1e-3),
            kind="add",
        ),
    ),
}


@pytest.mark.parametrize("case", OTHER_ROOTS)
def test_what_is_no_rms_norm_stays(case: str) -> None:
    b = Builder([1, 5, 12], [1, 5, 12])
    y = OTHER_ROOTS[case](b)
    assert "norm" not in " ".join(ops(simplified(b, b.add(Binary, y, "x1", kind="add"))))


def test_an_rms_norm_of_groups_is_no_group_norm() -> None:
    b = Builder([1, 12, 4, 4])
    groups = b.add(Reshape, "x0", shape=(1, 3, 64))
    y = b.add(Reshape, b.add(LayerNorm, groups, axis=2, epsilon=1e-5, centred=False), shape=(1, 12, 4, 4))
    assert "group_norm" not in ops(simplified(b, y))


DIFFERENT: dict[str, Callable[[Builder], str]] = {
    "variance of another tensor": lambda b: ROOTS["x / sqrt"](b, centred(b, "x0"), variance(b, "x1")),
    "mean of another tensor": lambda b: ROOTS["x / sqrt"](
        b, b.add(Binary, "x0", b.add(Reduce, "x1", kind="mean", axes=(2,)), kind="sub"), variance(b, "x0")
    ),
    "variance over other axes": lambda b: ROOTS["x / sqrt"](
        b, centred(b, "x0"), variance(b, "x0", axes=(1, 2))
    ),
    "axes that are not the last": lambda b: ROOTS["x / sqrt"](
        b, centred(b, "x0", (1,)), variance(b, "x0", (1,))
    ),
    "cubes": lambda b: ROOTS["x / sqrt"](b, centred(b, "x0"), variance(b, "x0", square="cube")),
    "divided by the variance": lambda b: b.add(Binary, centred(b, "x0"), variance(b, "x0"), kind="div"),
    "times the root": lambda b: b.add(
        Binary, centred(b, "x0"), b.add(Unary, variance(b, "x0"), kind="sqrt"), kind="mul"
    ),
    "not centred": lambda b: ROOTS["x / sqrt"](b, "x0", variance(b, "x0")),
    "mean - x": lambda b: ROOTS["x / sqrt"](
        b, b.add(Binary, b.add(Reduce, "x0", kind="mean", axes=(2,)), "x0", kind="sub"), variance(b, "x0")
    ),
    "sums": lambda b: ROOTS["x / sqrt"](
        b, b.add(Binary, "x0", b.add(Reduce, "x0", kind="sum", axes=(2,)), kind="sub"), variance(b, "x0")
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_is_no_layer_norm_stays(case: str) -> None:
    b = Builder([1, 5, 12], [1, 5, 12])
    y = DIFFERENT[case](b)
    assert "norm" not in " ".join(ops(simplified(b, b.add(Binary, y, "x1", kind="add"))))


@pytest.mark.parametrize(
    ("kind", "shape", "merged"),
    [
        ("mul", (12,), True),
        ("mul", (1, 1, 12), True),
        ("mul", (5, 12), False),
        ("mul", (1,), False),
        ("add", (12,), False),  # a beta without a gamma
    ],
)
def test_gamma_is_merged_where_it_has_a_number_a_column(kind: str, shape: Any, merged: bool) -> None:
    b = Builder([1, 5, 12])
    y = b.add(Binary, b.add(LayerNorm, "x0", axis=2, epsilon=1e-5), b.weight(*shape), kind=kind)
    assert len(simplified(b, y).nodes) == (1 if merged else 2)


def test_norm_that_others_read_keeps_its_gamma_apart() -> None:
    # layer_norm is read twice: it is computed once
    b = Builder([1, 5, 12])
    norm = b.add(LayerNorm, "x0", axis=2, epsilon=1e-5)
    y = b.add(Binary, b.add(Binary, norm, b.weight(12), kind="mul"), norm, kind="add")
    assert ops(simplified(b, y)) == ["layer_norm", "mul", "add"]


def test_gamma_of_ones_and_beta_of_zeros_go() -> None:
    b = Builder([1, 5, 12])
    one, zero = b.constant(np.ones(12)), b.constant(np.zeros(12))
    (norm,) = simplified(b, b.add(LayerNorm, "x0", one, zero, axis=2, epsilon=1e-5)).nodes
    assert norm.inputs == ("x0",)
    (norm,) = simplified(b, b.add(LayerNorm, "x0", one, b.weight(12), axis=2, epsilon=1e-5)).nodes
    assert len(norm.inputs) == 3


def group_norm(b: Builder, as_groups: tuple[int, ...], axes: tuple[int, ...]) -> str:
    split = b.add(Reshape, "x0", shape=as_groups)
    norm = ROOTS["x / sqrt"](b, centred(b, split, axes), variance(b, split, axes))
    whole = b.add(Reshape, norm, shape=[1, 12, 4, 5])
    return b.add(
        Binary, b.add(Binary, whole, b.weight(12, 1, 1), kind="mul"), b.weight(12, 1, 1), kind="add"
    )


@pytest.mark.parametrize(
    ("as_groups", "axes", "groups"),
    [
        ((1, 3, 80), (2,), 3),
        ((1, 3, 4, 4, 5), (2, 3, 4), 3),
        ((1, 1, 240), (2,), 1),
        ((1, 240), (1,), 1),
        ((1, 12, 20), (2,), 12),
        ((1, 6, 2, 20), (2, 3), 6),
    ],
)
def test_group_norm_written_out_becomes_one_node(as_groups: Any, axes: Any, groups: int) -> None:
    # x -> [1, G, …] -> layer norm -> [1, C, H, W], · gamma + beta  =>  group_norm(x, gamma, beta)
    b = Builder([1, 12, 4, 5])
    (norm,) = simplified(b, group_norm(b, as_groups, axes)).nodes
    assert isinstance(norm, GroupNorm)
    assert (norm.groups, len(norm.inputs)) == (groups, 3)


def test_runs_of_pixels_are_no_groups() -> None:
    # [1, 8, 30]: 24 rows of pixels would be groups of 1.5 channels
    b = Builder([1, 12, 4, 5])
    assert "layer_norm" in ops(simplified(b, group_norm(b, (1, 8, 30), (2,))))


def test_instance_norm_written_out_becomes_one_node() -> None:
    b = Builder([1, 12, 4, 5])
    norm = ROOTS["x / sqrt"](b, centred(b, "x0", (2, 3)), variance(b, "x0", (2, 3)))
    y = b.add(Binary, norm, b.weight(12, 1, 1), kind="mul")
    (norm_node,) = simplified(b, y).nodes
    assert isinstance(norm_node, GroupNorm)
    assert norm_node.groups == 12


def test_instance_norm_of_groups_as_channels_is_a_group_norm() -> None:
    # as PyTorch exports it: x -> [1, G, L] -> instance norm -> [1, C, H, W]  =>  group_norm(x)
    b = Builder([1, 12, 4, 5])
    one, zero = b.constant(np.ones(3)), b.constant(np.zeros(3))
    split = b.add(Reshape, "x0", shape=[1, 3, 1, 80])
    norm = b.add(GroupNorm, split, one, zero, groups=3, epsilon=1e-5)
    (node,) = simplified(b, b.add(Reshape, norm, shape=[1, 12, 4, 5])).nodes
    assert isinstance(node, GroupNorm)
    assert node.groups == 3


def test_a_group_norm_behind_a_1_d_convolution_is_one_of_an_image() -> None:
    # conv -> [1, C, L] -> [1, G, L'] -> layer norm -> [1, C, L] · gamma -> [1, C, 1, L] -> conv
    b = Builder([1, 12, 1, 20])
    row = b.add(Reshape, b.add(Reshape, "x0", shape=[1, 12, 20]), shape=[1, 3, 80])
    norm = b.add(Reshape, b.add(LayerNorm, row, axis=2, epsilon=1e-5), shape=[1, 12, 20])
    y = b.add(Binary, norm, b.weight(12, 1), kind="mul")
    node, _ = simplified(b, b.add(Reshape, y, shape=[1, 12, 1, 20])).nodes
    assert isinstance(node, GroupNorm)
    assert (node.groups, len(node.inputs)) == (3, 2)


def test_rows_of_a_sequence_are_no_groups() -> None:
    b = Builder([12, 20])
    norm = b.add(LayerNorm, "x0", axis=1, epsilon=1e-5)
    y = b.add(Reshape, norm, shape=[1, 12, 20])
    assert ops(simplified(b, y)) == ["layer_norm", "reshape"]
