"""graph/reference.py against ONNX Runtime, one op at a time, and against cases done by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from building import views_of_product
from convoy.errors import GraphError
from convoy.graph import Graph, Node, Tensor
from convoy.graph.ops import (
    Attention,
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    GridSample,
    GroupNorm,
    LayerNorm,
    Lrn,
    MatMul,
    Pad,
    Pool2d,
    Product,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.graph.reference import evaluate, run
from convoy.graph.shapes import infer_shape
from convoy.graph.sizes import open_size
from convoy.graph.verify import verify
from convoy.graph.views import View, broadcast_view, view_whole

Shape = tuple[int, ...]


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def one_node(node: Node, arrays: Sequence[np.ndarray], shape: Shape | None = None) -> Graph:
    """The node as a graph: its first input is the graph's, the others are constants."""
    shapes = {name: array.shape for name, array in zip(node.inputs, arrays, strict=True)}
    shapes[node.output] = infer_shape(node, shapes if shape is None else {**shapes, node.output: shape})
    return Graph(
        inputs=node.inputs[:1],
        outputs=(node.output,),
        nodes=(node,),
        tensors={name: Tensor(name, shape) for name, shape in shapes.items()},
        constants=dict(zip(node.inputs[1:], arrays[1:], strict=True)),
    )


def run_onnx(
    op: str, arrays: Sequence[np.ndarray], constants: Sequence[Any] = (), **attributes: Any
) -> Any:
    """One op in ONNX Runtime; ``constants`` are further inputs, None where one is left out."""
    inputs = {f"i{i}": array for i, array in enumerate(arrays)}
    named = [("" if c is None else f"c{i}", c) for i, c in enumerate(constants)]
    graph = helper.make_graph(
        [helper.make_node(op, [*inputs, *(name for name, _ in named)], ["y"], **attributes)],
        "one_node",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in inputs.items()],
        [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(np.asarray(c), name) for name, c in named if name],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    return ort.InferenceSession(model.SerializeToString()).run(None, inputs)[0]


def assert_agrees(node: Node, arrays: Sequence[np.ndarray], expected: np.ndarray) -> None:
    """In both dtypes, as a verified graph; the expected shape is the declared one."""
    graph = one_node(node, arrays, expected.shape)
    verify(graph)
    for dtype in (np.float32, np.float64):
        (y,) = run(graph, arrays[:1], dtype)
        assert y.dtype == dtype
        np.testing.assert_allclose(y, expected, rtol=2e-5, atol=2e-5 * np.abs(expected).max())


CONVS: dict[str, tuple[Shape, Shape, dict[str, Any]]] = {
    "plain": ((1, 3, 8, 9), (5, 3, 3, 3), {}),
    "strided, padded on every side alike": (
        (1, 3, 8, 9),
        (4, 3, 3, 3),
        {"stride": (2, 3), "padding": (1,) * 4},
    ),
    "asymmetric padding and kernel": ((1, 2, 7, 6), (3, 2, 2, 5), {"padding": (0, 3, 2, 1)}),
    "dilated": ((1, 2, 9, 9), (3, 2, 3, 3), {"dilation": (2, 3)}),
    "grouped": ((1, 6, 5, 5), (4, 3, 3, 3), {"groups": 2}),
    "depthwise": ((1, 5, 6, 6), (5, 1, 3, 3), {"groups": 5, "padding": (1,) * 4}),
    "depthwise, multiplier 2": ((1, 3, 6, 6), (6, 1, 3, 3), {"groups": 3}),
    "pointwise, strided": ((1, 4, 7, 7), (3, 4, 1, 1), {"stride": (2, 2)}),
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CONVS)
def test_conv2d(case: str, bias: bool) -> None:
    x, w, attributes = CONVS[case]
    arrays = [draw(*x), draw(*w), draw(w[0])][: 3 if bias else 2]
    node = Conv2d(inputs=("x", "w", "b")[: len(arrays)], output="y", **attributes)
    expected = run_onnx("Conv", arrays, strides=node.stride, pads=node.padding,
                        dilations=node.dilation, group=node.groups)  # fmt: skip
    assert_agrees(node, arrays, expected)


CONV_TRANSPOSES: dict[str, tuple[Shape, Shape, dict[str, Any]]] = {
    "plain": ((1, 3, 4, 5), (3, 2, 3, 3), {}),
    "doubling": ((1, 4, 4, 4), (4, 3, 2, 2), {"stride": (2, 2)}),
    "output padding": ((1, 2, 4, 5), (2, 3, 3, 3), {"stride": (3, 2), "output_padding": (2, 1)}),
    "asymmetric padding": ((1, 2, 5, 5), (2, 3, 4, 3), {"padding": (0, 1, 2, 0), "stride": (2, 1)}),
    "dilated": ((1, 2, 4, 4), (2, 3, 3, 2), {"dilation": (2, 3)}),
    "grouped": ((1, 6, 4, 4), (6, 2, 3, 3), {"groups": 3, "stride": (2, 2)}),
    "depthwise": ((1, 4, 4, 4), (4, 1, 4, 4), {"groups": 4, "stride": (2, 2), "padding": (1,) * 4}),
}  # fmt: skip


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CONV_TRANSPOSES)
def test_conv_transpose2d(case: str, bias: bool) -> None:
    x, w, attributes = CONV_TRANSPOSES[case]
    groups = attributes.get("groups", 1)
    arrays = [draw(*x), draw(*w), draw(w[1] * groups)][: 3 if bias else 2]
    node = ConvTranspose2d(inputs=("x", "w", "b")[: len(arrays)], output="y", **attributes)
    expected = run_onnx("ConvTranspose", arrays, strides=node.stride, pads=node.padding,
                        dilations=node.dilation, group=groups,
                        output_padding=node.output_padding)  # fmt: skip
    assert_agrees(node, arrays, expected)


@pytest.mark.parametrize("shape", [(1, 7), (4, 7), (1, 3, 4, 7)])
def test_matmul(shape: Shape) -> None:
    arrays = [draw(*shape), draw(7, 5)]
    expected = run_onnx("MatMul", arrays)
    assert_agrees(MatMul(inputs=("x", "w"), output="y"), arrays, expected)
    bias = draw(5)
    assert_agrees(MatMul(inputs=("x", "w", "b"), output="y"), [*arrays, bias], expected + bias)


@pytest.mark.parametrize(
    ("x", "y"), [((1, 3, 4, 7), (1, 3, 7, 5)), ((1, 3, 4, 7), (1, 1, 7, 5)), ((1, 4, 7), (1, 7, 4))]
)
def test_product(x: Shape, y: Shape) -> None:
    arrays = [draw(*x), draw(*y)]
    a, b, whole = views_of_product(x, y)
    node = Product(inputs=("x", "y"), output="z", a=a, b=b, y=whole, scale=0.5)
    assert_agrees(node, arrays, run_onnx("MatMul", arrays) * np.float32(0.5))


def test_a_product_of_views_is_one_of_transposed_tensors() -> None:
    # x [1, M, H·D] and y [1, N, H·D] hold heads side by side; so does the output, [1, M, H·N]
    x, y = draw(1, 5, 6), draw(1, 4, 6)
    node = Product(
        inputs=("x", "y"), output="z", a=View((2, 5, 3), (3, 6, 1)), b=View((2, 3, 4), (3, 1, 6)),
        y=View((2, 5, 4), (4, 8, 1)),
    )  # fmt: skip
    heads = np.einsum("mhd,nhd->mhn", x.reshape(5, 2, 3), y.reshape(4, 2, 3))
    assert_agrees(node, [x, y], heads.reshape(1, 5, 8))


ATTENTIONS: dict[str, tuple[Shape, Shape, dict[str, Any]]] = {
    "plain": ((1, 2, 5, 4), (1, 2, 5, 4), {}),
    "cross": ((1, 2, 3, 4), (1, 2, 7, 4), {}),
    "scaled": ((1, 2, 5, 4), (1, 2, 5, 4), {"scale": 1.5}),
    "causal": ((1, 2, 5, 4), (1, 2, 5, 4), {"is_causal": 1}),
    "causal, more keys": ((1, 2, 3, 4), (1, 2, 5, 4), {"is_causal": 1}),
    "grouped": ((1, 6, 5, 4), (1, 2, 5, 4), {}),
}
"""Shapes of q and k in ONNX's Attention, and its attributes."""


@pytest.mark.parametrize("mask", ["none", "all heads alike", "each head", "keys"])
@pytest.mark.parametrize("case", ATTENTIONS)
def test_attention(case: str, mask: str) -> None:
    (_, heads, m, d), (_, groups, n, _), attributes = ATTENTIONS[case]
    arrays = [draw(1, heads, m, d), draw(1, groups, n, d) + 1, draw(1, groups, n, 3)]
    masks = {"none": (), "all heads alike": (m, n), "each head": (1, heads, m, n), "keys": (1, n)}
    arrays += [draw(*masks[mask])] if masks[mask] else []
    full = [np.broadcast_to(added, (*added.shape[:-2], m, n)) for added in arrays[3:]]  # for ONNX Runtime
    expected = run_onnx("Attention", [*arrays[:3], *full], **attributes)
    lead = (groups, heads // groups)  # of which each group reads the same keys
    shared = [View((*lead, n, size), (n * size, 0, size, 1)) for size in (d, 3)]
    node = Attention(
        inputs=("q", "k", "v", "mask")[: len(arrays)], output="y", q=view_whole((*lead, m, d)), k=shared[0],
        v=shared[1], y=view_whole((*lead, m, 3)), scale=attributes.get("scale", d**-0.5),
        diagonal=0 if "is_causal" in attributes else None,
        mask=split_heads(masks[mask], (*lead, m, n)) if masks[mask] else None,
    )  # fmt: skip
    assert_agrees(node, arrays, expected)


def split_heads(mask: Shape, shape: Shape) -> View:
    """A mask that broadcasts to [heads, M, N], as [groups, heads of each, M, N]."""
    whole = broadcast_view(view_whole(mask), (1, prod(shape[:2]), *shape[2:]))
    return View(shape, (whole.strides[1] * shape[1], *whole.strides[1:]))


def test_a_query_that_may_see_no_key_is_nan_as_in_a_softmax() -> None:
    arrays, view = [draw(1, 3, 4)] * 3, view_whole((3, 4))
    mask = np.float32([[0, 0, 0], [-np.inf] * 3, [0, -np.inf, 0]])
    node = Attention(inputs=("q", "k", "v", "mask"), output="y", q=view, k=view, v=view, y=view,
                     mask=view_whole((3, 3)), scale=0.5)  # fmt: skip
    (y,) = run(one_node(node, [*arrays, mask], (1, 3, 4)), arrays[:1])
    assert np.isnan(y[0]).tolist() == [[False] * 4, [True] * 4, [False] * 4]
    (y,) = run(one_node(replace(node, safe=True), [*arrays, mask], (1, 3, 4)), arrays[:1])
    assert not y[0, 1].any()
    late = replace(node, inputs=node.inputs[:3], mask=None, diagonal=-1)
    (y,) = run(one_node(late, arrays, (1, 3, 4)), arrays[:1])
    assert np.isnan(y[0]).tolist() == [[True] * 4, [False] * 4, [False] * 4]
    np.testing.assert_array_equal(y[0, 1], arrays[2][0, 0])


def test_a_view_covers_a_tensor_whose_elements_it_has_once() -> None:
    n = open_size("n", 1)
    assert view_whole((2, 3, 4)).covers(24)
    assert View((3, 2, 4), (4, 12, 1)).covers(24)  # transposed
    assert View((3, 1, 2), (2, 77, 1)).covers(6)  # an axis of length 1 has any stride
    assert view_whole((4, n, n)).covers(4 * n * n)  # of likely length 1, which says nothing of an order
    assert not View((3, 2, 4), (4, 12, 1)).covers(25)
    assert not View((3, 2), (2, 1), offset=1).covers(6)
    assert not View((3, 2), (1, 1)).covers(6)  # elements twice
    assert not View((3, 2), (0, 1)).covers(6)
    assert not View((3, 2), (4, 2)).covers(6)  # every other element


POOLS: dict[str, dict[str, Any]] = {
    "plain": {"kernel": (2, 2), "stride": (2, 2)},
    "padded": {"kernel": (3, 3), "stride": (2, 1), "padding": (1, 1, 1, 1)},
    "asymmetric": {"kernel": (3, 2), "stride": (1, 2), "padding": (0, 1, 2, 0)},
    "ceil": {"kernel": (3, 3), "stride": (2, 2), "ceil": True},
    "ceil and padded": {"kernel": (3, 3), "stride": (3, 2), "padding": (1, 1, 0, 1), "ceil": True},
    "dilated": {"kernel": (3, 2), "dilation": (2, 3)},
}


@pytest.mark.parametrize("kind", ["max", "avg", "avg, counting padding"])
@pytest.mark.parametrize("case", POOLS)
def test_pool2d(case: str, kind: str) -> None:
    attributes = dict(POOLS[case])
    ceil, x = attributes.pop("ceil", False), draw(1, 3, 8, 7)
    op, counting = (
        ("MaxPool", {}) if kind == "max" else ("AveragePool", {"count_include_pad": int("," in kind)})
    )
    node = Pool2d(inputs=("x",), output="y", kind=kind[:3], count_include_pad="," in kind, **attributes)
    expected = run_onnx(op, [x], kernel_shape=node.kernel, strides=node.stride, pads=node.padding,
                        dilations=node.dilation, ceil_mode=int(ceil), **counting)  # fmt: skip
    assert_agrees(node, [x], expected)


def test_nan_makes_a_max_pool_forget_what_came_before() -> None:
    # as in ONNX Runtime: the maximum of the taps after the last NaN, NaN where that is the last tap
    x = np.array([[5, np.nan, 1], [2, 3, np.nan]], np.float32).reshape(1, 1, 2, 3)
    node = Pool2d(inputs=("x",), output="y", kind="max", kernel=(1, 3), padding=(0, 0, 0, 1))
    (y,) = run(one_node(node, [x]), [x])
    np.testing.assert_array_equal(y.reshape(2, 2), [[1, 1], [np.nan, np.nan]])


@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [(1,), (2, 3), (1, 3)])
@pytest.mark.parametrize("kind", ["mean", "sum", "max", "min"])
def test_reduce(kind: str, axes: tuple[int, ...], keepdims: bool) -> None:
    x = draw(1, 4, 3, 5)
    expected = run_onnx(f"Reduce{kind.title()}", [x], [np.array(axes)], keepdims=int(keepdims))
    assert_agrees(Reduce(inputs=("x",), output="y", kind=kind, axes=axes, keepdims=keepdims), [x], expected)


UNARIES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "relu": ("Relu", {}, {}),
    "leaky_relu": ("LeakyRelu", {"alpha": 0.2}, {"a": 0.2}),
    "sigmoid": ("Sigmoid", {}, {}),
    "tanh": ("Tanh", {}, {}),
    "hardswish": ("HardSwish", {}, {}),
    "hardsigmoid": ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, {"a": 0.3, "b": 0.4}),
    "gelu": ("Gelu", {}, {}),
    "gelu_tanh": ("Gelu", {"approximate": "tanh"}, {}),
    "exp": ("Exp", {}, {}),
    "abs": ("Abs", {}, {}),
    "neg": ("Neg", {}, {}),
    "erf": ("Erf", {}, {}),
    "softplus": ("Softplus", {}, {}),
    "elu": ("Elu", {"alpha": 1.5}, {"a": 1.5}),
    "mish": ("Mish", {}, {}),
    "round": ("Round", {}, {}),
    "floor": ("Floor", {}, {}),
    "ceil": ("Ceil", {}, {}),
    "sin": ("Sin", {}, {}),
    "cos": ("Cos", {}, {}),
    "atan": ("Atan", {}, {}),
    "reciprocal": ("Reciprocal", {}, {}),
    "log": ("Log", {}, {}),
    "sqrt": ("Sqrt", {}, {}),
}


@pytest.mark.parametrize("kind", UNARIES)
def test_unary(kind: str) -> None:
    op, onnx_attributes, parameters = UNARIES[kind]
    x = np.concatenate([draw(1, 200) * 3, [[0.5, 1.5, 2.5, -0.5, -1.5, 1e-3, 30, 60]]], 1).astype(
        np.float32
    )
    if kind in ("log", "sqrt"):
        x = np.abs(x)
    expected = run_onnx(op, [x], **onnx_attributes)
    graph = one_node(Unary(inputs=("x",), output="y", kind=kind, **parameters), [x])
    verify(graph)
    (y,) = run(graph, [x])
    np.testing.assert_allclose(y, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "parameters", "x", "y"),
    [
        ("clip", {"a": -1.0, "b": 2.0}, [-3.0, 0.5, 7.0], [-1.0, 0.5, 2.0]),
        ("square", {}, [-3.0, 0.5], [9.0, 0.25]),
        ("rsqrt", {}, [4.0, 0.25], [0.5, 2.0]),
        ("silu", {}, [0.0, 1.0, -100.0], [0.0, 0.7310586, 0.0]),
        ("sigmoid", {}, [-1000.0, 0.0, 1000.0], [0.0, 0.5, 1.0]),
    ],
)
def test_unary_by_hand(kind: str, parameters: dict[str, float], x: list[float], y: list[float]) -> None:
    arrays = [np.array([x], np.float32)]
    node = Unary(inputs=("x",), output="y", kind=kind, **parameters)
    assert_agrees(node, arrays, np.array([y], np.float32))


@pytest.mark.parametrize("kind", [*UNARIES, "clip", "silu", "square", "rsqrt"])
def test_unary_passes_nan_on(kind: str) -> None:
    x = np.array([[np.nan]], np.float32)
    bounds = {"a": 0.0, "b": 1.0} if kind == "clip" else UNARIES.get(kind, ("", {}, {}))[2]
    (y,) = run(one_node(Unary(inputs=("x",), output="y", kind=kind, **bounds), [x]), [x])
    assert np.isnan(y).all()


@pytest.mark.parametrize("other", [(1, 4, 3, 5), (1, 4, 1, 1), (5,), (1,), (1, 1, 3, 1)])
@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div", "max", "min", "pow"])
def test_binary(kind: str, other: Shape) -> None:
    arrays = [np.abs(draw(1, 4, 3, 5)), draw(*other)]
    expected = run_onnx(kind.title(), arrays)
    assert_agrees(Binary(inputs=("x", "z"), output="y", kind=kind), arrays, expected)


def test_coalesce_takes_a_number_where_there_is_one() -> None:
    x, y = np.float32([[np.nan, 1, -7, np.nan]]), np.float32([5])
    assert_agrees(
        Binary(inputs=("x", "y"), output="z", kind="coalesce"), [x, y], np.float32([[5, 1, -7, 5]])
    )
    assert_agrees(Binary(inputs=("y", "x"), output="z", kind="coalesce"), [y[None], x], np.full((1, 4), 5))


@pytest.mark.parametrize("axis", [1, 3])
def test_concat(axis: int) -> None:
    arrays = [
        draw(*(size + 2 if i == axis else size for i, size in enumerate((1, 3, 4, n)))) for n in (5, 5, 5)
    ]
    expected = run_onnx("Concat", arrays, axis=axis)
    assert_agrees(Concat(inputs=("x", "z", "v"), output="y", axis=axis), arrays, expected)


@pytest.mark.parametrize(
    ("axis", "begin", "end", "step"), [(1, 2, 7, 1), (2, 1, 6, 2), (3, 0, 5, 3), (2, 5, 1, -2)]
)
def test_slice(axis: int, begin: int, end: int, step: int) -> None:
    x = draw(1, 8, 7, 5)
    expected = run_onnx("Slice", [x], [np.array([n]) for n in (begin, end, axis, step)])
    assert_agrees(
        Slice(inputs=("x",), output="y", axis=axis, begin=begin, end=end, step=step), [x], expected
    )


@pytest.mark.parametrize("beta", [True, False])
@pytest.mark.parametrize("axis", [1, 2, 3])
def test_layer_norm(axis: int, beta: bool) -> None:
    arrays = [draw(1, 4, 3, 5), *(draw(4, 3, 5)[(0,) * (axis - 1)] for _ in range(1 + beta))]
    expected = run_onnx("LayerNormalization", arrays, axis=axis, epsilon=1e-3)
    names = ("x", "z", "v")[: len(arrays)]
    assert_agrees(LayerNorm(inputs=names, output="y", axis=axis, epsilon=1e-3), arrays, expected)


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_rms_norm(axis: int) -> None:
    arrays = [draw(1, 4, 3, 5), draw(4, 3, 5)[(0,) * (axis - 1)]]
    expected = run_onnx("RMSNormalization", arrays, axis=axis, epsilon=1e-3)
    node = LayerNorm(inputs=("x", "z"), output="y", axis=axis, epsilon=1e-3, centred=False)
    assert_agrees(node, arrays, expected)


@pytest.mark.parametrize("groups", [1, 3, 6])
def test_group_norm(groups: int) -> None:
    arrays = [draw(1, 6, 3, 5), draw(6), draw(6) + 1]
    split = run_onnx("Reshape", arrays[:1], [np.array([1, groups, -1])])
    one, zero = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    normal = run_onnx("InstanceNormalization", [split, one, zero], epsilon=1e-3).reshape(arrays[0].shape)
    expected = normal * arrays[1].reshape(-1, 1, 1) + arrays[2].reshape(-1, 1, 1)
    assert_agrees(
        GroupNorm(inputs=("x", "z", "v"), output="y", groups=groups, epsilon=1e-3), arrays, expected
    )


def test_reshape() -> None:
    x = draw(1, 8, 3, 5)
    assert_agrees(Reshape(inputs=("x",), output="y"), [x], run_onnx("Reshape", [x], [np.array([1, 4, -1])]))


def test_transpose() -> None:
    x = draw(1, 8, 3, 5)
    expected = run_onnx("Transpose", [x], perm=(0, 3, 1, 2))
    assert_agrees(Transpose(inputs=("x",), output="y", perm=(0, 3, 1, 2)), [x], expected)


def test_channel_shuffle() -> None:
    # six channels in two groups: 0 1 2 | 3 4 5  =>  0 3 1 4 2 5
    x = np.arange(6, dtype=np.float32).reshape(1, 6, 1, 1)
    expected = np.array([0, 3, 1, 4, 2, 5], np.float32).reshape(1, 6, 1, 1)
    assert_agrees(ChannelShuffle(inputs=("x",), output="y", groups=2), [x], expected)


@pytest.mark.parametrize("value", [0.0, -1.5])
def test_pad(value: float) -> None:
    x, widths = draw(1, 2, 3, 4), ((0, 0), (1, 0), (0, 2), (3, 1))
    begins_ends = np.array([w[0] for w in widths] + [w[1] for w in widths])
    expected = run_onnx("Pad", [x], [begins_ends, np.float32(value)])
    assert_agrees(Pad(inputs=("x",), output="y", widths=widths, value=value), [x], expected)


@pytest.mark.parametrize(
    ("source", "size"),
    [((5, 7), size) for size in ((10, 14), (5, 7), (3, 4), (8, 9), (13, 20))] + [((4, 8), (1, 1))],
)
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", None])
def test_resize(rounding: str | None, coordinates: str, source: Shape, size: Shape) -> None:
    # rounding None: bilinear
    x = draw(1, 2, *source)
    attributes: dict[str, Any] = {"mode": "linear"}
    if rounding:
        attributes = {"mode": "nearest", "nearest_mode": rounding}
    expected = run_onnx("Resize", [x], [None, None, np.array([1, 2, *size])],
                        coordinate_transformation_mode=coordinates, **attributes)  # fmt: skip
    node = Resize(
        inputs=("x",),
        output="y",
        mode="nearest" if rounding else "bilinear",
        coordinates=coordinates,
        rounding=rounding or "floor",
    )
    assert_agrees(node, [x], expected)


def test_whole_coordinates_of_resize_are_exact() -> None:
    # five pixels to one: the centre is pixel 2, where a float32 scale of 0.2 gives 1.9999999
    x = np.arange(5, dtype=np.float32).reshape(1, 1, 1, 5)
    node = Resize(inputs=("x",), output="y", mode="nearest", coordinates="half_pixel", rounding="floor")
    assert_agrees(node, [x], np.array(2, np.float32).reshape(1, 1, 1, 1))


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "asymmetric"])
def test_resize_by_scales_that_do_not_divide(mode: str, coordinates: str) -> None:
    x, scales = draw(1, 2, 5, 7), (1.7, 0.6)
    expected = run_onnx("Resize", [x], [None, np.array([1, 1, *scales], np.float32)],
                        mode=mode.replace("bilinear", "linear"), nearest_mode="floor",
                        coordinate_transformation_mode=coordinates)  # fmt: skip
    node = Resize(inputs=("x",), output="y", mode=mode, coordinates=coordinates, scales=scales)
    assert_agrees(node, [x], expected)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_grid_sample(mode: Any, padding: Any, corners: bool) -> None:
    x, grid = draw(1, 3, 5, 7), 1.5 * draw(1, 4, 6, 2)
    grid[0, 0] = [[np.nan, 0], [np.inf, 0.1], [0.2, -np.inf], [3e38, 0], [-1, 1], [1, -1]]
    grid[0, 1, :2] = [[2.0 / 7 * 10 + 1 / 7 - 1, 0], [0, -1 - 1 / 5 - 2 / 5]]  # halfway, outside
    expected = run_onnx(
        "GridSample", [x, grid], mode=mode.replace("bilinear", "linear"), padding_mode=padding,
        align_corners=int(corners),
    )  # fmt: skip
    node = GridSample(inputs=("x", "g"), output="y", mode=mode, padding=padding, corners=corners)
    assert_agrees(node, [x, grid.transpose(0, 3, 1, 2)], expected)


@pytest.mark.parametrize("axis", [1, 3])
@pytest.mark.parametrize("log", [False, True])
def test_softmax(log: bool, axis: int) -> None:
    x = draw(1, 6, 3, 4) * 30
    expected = run_onnx("LogSoftmax" if log else "Softmax", [x], axis=axis)
    assert_agrees(Softmax(inputs=("x",), output="y", axis=axis, log=log), [x], expected)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_lrn(size: int) -> None:
    x = draw(1, 7, 3, 4) * 5
    expected = run_onnx("LRN", [x], size=size, alpha=0.3, beta=0.75, bias=2.0)
    assert_agrees(Lrn(inputs=("x",), output="y", size=size, alpha=0.3, beta=0.75, bias=2.0), [x], expected)


def two_step_graph(batch: int | None) -> Graph:
    nodes = (
        Conv2d(inputs=("x", "w"), output="conv", padding=(1, 1, 1, 1)),
        Reduce(inputs=("conv",), output="y", kind="max", axes=(1, 2, 3), keepdims=False),
    )
    shapes = {"x": (1, 2, 4, 4), "w": (3, 2, 3, 3), "conv": (1, 3, 4, 4), "y": (1,)}
    tensors = {name: Tensor(name, shape) for name, shape in shapes.items()}
    return Graph(("x",), ("conv", "y"), nodes, tensors, {"w": draw(3, 2, 3, 3)}, batch)


@pytest.mark.parametrize("batch", [3, None])
def test_batch_runs_image_by_image(batch: int | None) -> None:
    x = draw(3, 2, 4, 4)
    graph = two_step_graph(batch)
    verify(graph)
    conv, y = run(graph, [x])
    w = graph.constants["w"]
    np.testing.assert_allclose(conv, run_onnx("Conv", [x, w], pads=(1,) * 4), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y, conv.max((1, 2, 3)))


def test_evaluate_gives_the_inner_tensors() -> None:
    x = draw(1, 2, 4, 4)
    graph = two_step_graph(1)
    values = evaluate(graph, [x], np.float64)
    assert set(values) == set(graph.tensors)
    np.testing.assert_array_equal(values["conv"], run(graph, [x], np.float64)[0])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "reference: graph: expected 1 inputs, got 0"),
        ([draw(2, 2, 4, 4)], r"reference: input %x: expected shape \(3, 2, 4, 4\), got \(2, 2, 4, 4\)"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs: list[np.ndarray], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        run(two_step_graph(3), inputs)
