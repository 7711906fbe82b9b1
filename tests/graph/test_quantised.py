"""Quantize and Dequantize: ONNX's definition, the rules of the nodes, constants behind Dequantize."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from building import Builder
from convoy.errors import GraphError
from convoy.graph import Graph, Tensor
from convoy.graph.builder import Builder as Lowered
from convoy.graph.bytes import prepare_bytes
from convoy.graph.dtypes import DType
from convoy.graph.ops import Conv2d, Dequantize, Pad, Quantize, Reshape, Slice, Unary
from convoy.graph.quantised import dequantize, dequantize_constants, quantize
from convoy.graph.reference import run
from convoy.graph.rewrite import simplify
from convoy.graph.verify import verify


def quantised(dtype: DType = "uint8", channels: int = 1) -> Graph:
    """dequantize(quantize(x)) of [1, 3, 4]."""
    b = Lowered("flat")
    x = b.input("x", (1, 3, 4))
    scale = np.linspace(0.5, 0.25, channels, dtype=np.float32)
    zero = np.arange(channels).astype(dtype)
    q = b.quantize(x, scale, zero, 1)
    return b.finish((x,), (b.dequantize(q, scale, zero, 1),), 1)


def test_halves_go_to_even_and_the_zero_point_is_added_behind() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5], np.float32)
    one, zero = np.ones(1, np.float32), np.array([3], np.uint8)
    assert quantize(x, one, zero, 0).tolist() == [3, 5, 5, 3, 1]


def test_what_no_byte_holds_is_held_at_its_ends() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 300, -300], np.float32)
    one = np.ones(1, np.float32)
    assert quantize(x, one, np.array([3], np.uint8), 0).tolist() == [255, 0, 0, 255, 0, 255, 0]
    assert quantize(x, one, np.array([3], np.int8), 0).tolist() == [127, -128, -128, 127, -128, 127, -128]


def test_the_quotient_is_that_of_float32() -> None:
    """x · (1 / scale) would give another number here."""
    scale = np.array([0.0723], np.float32)
    x = (np.arange(-100, 100) + np.float32(0.5)) * scale
    wanted = np.clip(np.rint(x / scale), -128, 127)
    np.testing.assert_array_equal(quantize(x, scale, np.zeros(1, np.int8), 0), wanted)
    assert (np.rint(x * (1 / scale)) != np.rint(x / scale)).any(), "the example shows nothing"


def test_a_scale_and_zero_point_for_each_number_along_an_axis() -> None:
    x = np.ones((2, 3, 2), np.float32)
    scale, zero = np.array([1, 0.5, 0.25], np.float32), np.array([0, 1, 2], np.uint8)
    q = quantize(x, scale, zero, 1)
    assert q[0, :, 0].tolist() == [1, 3, 6]
    np.testing.assert_array_equal(dequantize(q, scale, zero, 1), x)


def test_sums_of_32_bits_lose_nothing_before_they_are_scaled() -> None:
    x = np.array([2**31 - 1, -(2**31)], np.int32)
    zero = np.array([-(2**31)], np.int32)
    made = dequantize(x, np.ones(1, np.float32), zero, 0)
    np.testing.assert_array_equal(made, np.array([2**32 - 1, 0], np.float32))


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [1, 3])
def test_the_types_go_to_bytes_and_back(dtype: DType, channels: int) -> None:
    graph = quantised(dtype, channels)
    verify(graph)
    assert [graph.dtype(node.output) for node in graph.nodes] == [dtype, "float32"]
    x = np.linspace(-3, 3, 12, dtype=np.float32).reshape(1, 3, 4)
    (y,) = run(graph, [x])
    assert y.dtype == np.float32
    assert np.abs(y - np.maximum(x, 0 if dtype == "uint8" else -3)).max() <= 0.5


def test_equal_scales_along_an_axis_are_one() -> None:
    b = Lowered("flat")
    x = b.input("x", (1, 3, 4))
    b.quantize(x, np.full(3, 0.5, np.float32), np.zeros(3, np.int8), 1)
    (node,) = b.nodes
    assert isinstance(node, Quantize)
    assert node.axis == 0
    assert [b.shape_of(name) for name in node.inputs[1:]] == [(1,), (1,)]


def broken(graph: Graph, **changes: object) -> Graph:
    """The graph with another first node."""
    first, *rest = graph.nodes
    return replace(graph, nodes=(replace(first, **changes), *rest))  # type: ignore[arg-type]


def test_scales_that_do_not_fit_are_refused() -> None:
    graph = quantised("uint8", 3)
    with pytest.raises(GraphError, match=r"expected a scale of shape \(1,\) or \(4,\), got \(3,\)"):
        verify(broken(graph, axis=2))
    with pytest.raises(GraphError, match="expected an axis < 3, got 3"):
        verify(broken(graph, axis=3))


def test_types_that_do_not_fit_are_refused() -> None:
    graph = quantised("uint8")
    made = graph.nodes[0].output
    tensors = {**graph.tensors, made: Tensor(made, (1, 3, 4), "int8")}
    with pytest.raises(GraphError, match=r"expected %c1 of int8, got uint8"):
        verify(replace(graph, tensors=tensors))
    tensors = {**graph.tensors, made: Tensor(made, (1, 3, 4), "int32")}
    with pytest.raises(GraphError, match=r"expected %t0 of uint8, int8, got int32"):
        verify(replace(graph, tensors=tensors))


def convolution() -> Graph:
    """A convolution whose weight and bias are dequantised constants, one scale a channel."""
    b = Lowered("images")
    x = b.input("x", (1, 2, 5, 5))
    random = np.random.default_rng(0)
    scale, zero = np.array([0.5, 0.25, 0.125], np.float32), np.zeros(3, np.int8)
    w = b.dequantize(b.constant(random.integers(-127, 127, (3, 2, 3, 3)).astype(np.int8)), scale, zero)
    bias = b.dequantize(
        b.constant(random.integers(-999, 999, 3).astype(np.int32)), scale / 8, zero.astype(np.int32)
    )
    return b.finish((x,), (b.node(Conv2d, (x, w, bias), (1, 3, 3, 3)),), None)


def test_weights_behind_dequantize_are_weights_at_any_batch() -> None:
    graph = convolution()
    verify(graph)
    folded = dequantize_constants(graph)
    verify(folded)
    assert [type(node) for node in folded.nodes] == [Conv2d]
    x = np.random.default_rng(1).standard_normal((2, 2, 5, 5)).astype(np.float32)
    np.testing.assert_array_equal(run(folded, [x])[0], run(graph, [x])[0])


def test_weights_that_integer_kernels_read_stay_integers() -> None:
    graph = convolution()
    (w, *_) = graph.nodes
    kept = dequantize_constants(graph, {w.output})
    assert [type(node) for node in kept.nodes] == [Dequantize, Conv2d]


def test_a_weight_that_is_dequantised_at_the_call_is_none() -> None:
    b = Builder([1, 2, 5, 5], [3, 2, 3, 3])
    b.tensors["x1"] = Tensor("x1", (3, 2, 3, 3), "int8")
    one, zero = b.constant(np.ones(1)), b.constant(np.zeros(1))
    b.constants[zero] = np.zeros(1, np.int8)
    b.tensors[zero] = Tensor(zero, (1,), "int8")
    y = b.add(Conv2d, "x0", b.add(Dequantize, "x1", one, zero))
    with pytest.raises(GraphError, match="expected a constant weight, got %t0, computed at run time"):
        verify(b.graph(y))


def test_activations_read_no_bytes() -> None:
    graph = quantised()
    nodes = (graph.nodes[0], Unary(inputs=(graph.nodes[0].output,), output=graph.outputs[0], kind="relu"))
    with pytest.raises(GraphError, match="expected %t0 of float32, got uint8"):
        verify(replace(graph, nodes=nodes))


# quantize(clamp(x))  =>  quantize(x), where bytes end where the clamp does


def clamped(kind: str, zero: int, scale: float = 0.1, dtype: DType = "uint8", **bounds: float) -> Graph:
    b = Lowered("flat")
    x = b.input("x", (1, 3, 4))
    y = b.node(Unary, (x,), (1, 3, 4), kind=kind, **bounds)
    return b.finish((x,), (b.quantize(y, np.float32([scale]), np.array([zero], dtype)),), 1)


@pytest.mark.parametrize(
    "graph",
    [
        clamped("relu", 0),
        clamped("relu", -128, dtype="int8"),
        clamped("clip", 0, 6 / 255, a=0.0, b=6.0),
        clamped("clip", 0, 0.02, a=-1.0, b=6.0),
        clamped("clip", 128, 0.01, a=-2.0, b=2.0),
    ],
)
def test_a_clamp_no_byte_passes_is_swallowed(graph: Graph) -> None:
    simple = simplify(graph)
    assert [type(node) for node in simple.nodes] == [Quantize]
    x = np.float32([-np.inf, -7, -0.04, 0, 0.01, 1.999, 2.01, 5.99, 6.01, 40, np.inf, np.nan])
    np.testing.assert_array_equal(*(run(g, [x.reshape(1, 3, 4)])[0] for g in (simple, graph)))


@pytest.mark.parametrize(
    "graph",
    [
        clamped("relu", 1),
        clamped("relu", -127, dtype="int8"),
        clamped("clip", 0, 7 / 255, a=0.0, b=6.0),
        clamped("clip", 128, 0.02, a=-1.0, b=3.0),
        clamped("leaky_relu", 0, a=0.1),
    ],
)
def test_a_clamp_within_the_bytes_stays(graph: Graph) -> None:
    assert [type(node) for node in simplify(graph).nodes] == [Unary, Quantize]


# What moves bytes


def moved(zero: int = 7, scale: float = 0.1, axes: int = 1) -> Graph:
    """quantize(slice(dequantize(quantize(x)))), with other numbers where they are given."""
    b = Lowered("flat")
    x = b.input("x", (1, 4, 4))
    one, point = np.full(axes, 0.1, np.float32), np.full(axes, 7, np.uint8)
    if axes > 1:
        one[0] = 0.2
    y = b.dequantize(b.quantize(x, one, point, 1), one, point, 1)
    y = b.node(Slice, (y,), (1, 2, 4), axis=1, begin=1, end=3)
    return b.finish((x,), (b.quantize(y, np.float32([scale]), np.uint8([zero])),), 1)


def test_bytes_are_moved_as_they_are() -> None:
    # quantize -> dequantize -> slice -> quantize  =>  quantize -> slice
    simple = simplify(moved())
    assert [type(node) for node in simple.nodes] == [Quantize, Slice, Reshape]
    x = np.linspace(-1, 20, 16, dtype=np.float32).reshape(1, 4, 4)
    np.testing.assert_array_equal(*(run(g, [x])[0] for g in (simple, moved())))


@pytest.mark.parametrize("graph", [moved(zero=8), moved(scale=0.2)])
def test_bytes_of_other_numbers_are_made_of_what_was_moved(graph: Graph) -> None:
    assert [type(node) for node in simplify(graph).nodes] == [Quantize, Slice, Dequantize, Quantize]


def test_what_has_a_scale_for_each_channel_is_moved_as_floats() -> None:
    assert [type(node) for node in simplify(moved(axes=4)).nodes] == [Quantize, Dequantize, Slice, Quantize]


def padded(value: float = 0.0, seen: bool = False) -> Graph:
    """relu(dequantize(quantize(pad(dequantize(quantize(x)))))), and the pad where it is seen."""
    b = Lowered("flat")
    x = b.input("x", (1, 4, 4))
    one, zero = np.float32([0.5]), np.int8([-3])
    y = b.dequantize(b.quantize(x, one, zero), one, zero)
    pad = b.node(Pad, (y,), (1, 4, 6), widths=((0, 0), (0, 0), (1, 1)), value=value)
    y = b.node(Unary, (b.dequantize(b.quantize(pad, one, zero), one, zero),), (1, 4, 6), kind="relu")
    return b.finish((x,), (y, pad) if seen else (y,), 1)


@pytest.mark.parametrize("graph", [padded(), padded(3.5), padded(-1.0, seen=True)])
def test_padding_that_is_a_byte_is_of_bytes(graph: Graph) -> None:
    simple = prepare_bytes(simplify(graph))
    assert [type(node) for node in simple.nodes][:3] == [Quantize, Pad, Dequantize]
    x = np.linspace(-9, 9, 16, dtype=np.float32).reshape(1, 4, 4)
    for got, want in zip(run(simple, [x]), run(graph, [x]), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("value", [0.25, 1e9, -np.inf])
def test_padding_that_is_no_byte_is_of_floats(value: float) -> None:
    assert [type(node) for node in simplify(padded(value)).nodes][:3] == [Quantize, Dequantize, Pad]


def of_a_row(axes: int = 1, seen: bool = False) -> Graph:
    """quantize(reshape(tanh(conv(x)))), as of a 1-D convolution; ``seen``: the floats are given, too."""
    b = Lowered("row")
    x = b.input("x", (1, 4, 1, 6))
    w = b.constant(np.arange(16, dtype=np.float32).reshape(4, 4, 1, 1) / 8)
    y = b.node(Unary, (b.node(Conv2d, (x, w), (1, 4, 1, 6)),), (1, 4, 1, 6), kind="tanh")
    row = b.node(Reshape, (y,), (1, 4, 6))
    scales = np.linspace(0.01, 0.02, axes, dtype=np.float32)
    made = b.quantize(row, scales, np.full(axes, 7, np.uint8), 1)
    return b.finish((x,), (made, row) if seen else (made,), 1)


def test_a_convolution_of_a_row_makes_bytes_before_they_are_reshaped() -> None:
    simple = simplify(of_a_row())
    assert [type(node) for node in simple.nodes] == [Conv2d, Unary, Quantize, Reshape]
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(1, 4, 1, 6)
    np.testing.assert_array_equal(*(run(g, [x])[0] for g in (simple, of_a_row())))


@pytest.mark.parametrize("graph", [of_a_row(axes=4), of_a_row(seen=True)])
def test_rows_that_others_see_or_with_scales_of_channels_are_reshaped_as_floats(
    graph: Graph,
) -> None:
    assert [type(node) for node in simplify(graph).nodes][-2:] == [Reshape, Quantize]
