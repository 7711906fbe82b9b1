"""graph/verify.py: each rule broken once; the error names the node and the rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from building import views_of_product
from convoy.errors import GraphError
from convoy.graph import Graph, Node, Tensor
from convoy.graph.flops import count_flops
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
from convoy.graph.shapes import infer_shape
from convoy.graph.sizes import open_size
from convoy.graph.verify import verify
from convoy.graph.views import View

Shape = tuple[int, ...]


def conv_relu(**changes: Any) -> Graph:
    """relu(conv2d(x, w) + b), legal but for ``changes``."""
    nodes = (
        Conv2d(inputs=("x", "w", "b"), output="conv", padding=(1, 1, 1, 1), origin="conv1"),
        Unary(inputs=("conv",), output="y", kind="relu"),
    )
    shapes = {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "b": (4,), "conv": (1, 4, 8, 8), "y": (1, 4, 8, 8)}
    graph = Graph(
        inputs=("x",),
        outputs=("y",),
        nodes=nodes,
        tensors={name: Tensor(name, shape) for name, shape in shapes.items()},
        constants={name: np.zeros(shapes[name], np.float32) for name in ("w", "b")},
    )
    return replace(graph, **changes)


def with_tensor(name: str, *shape: int) -> dict[str, Any]:
    return {"tensors": {**conv_relu().tensors, name: Tensor(name, shape)}}


def with_constant(name: str, array: np.ndarray) -> dict[str, Any]:
    return {"constants": {**conv_relu().constants, name: array}}


CONV, RELU = conv_relu().nodes

BROKEN_GRAPHS: dict[str, tuple[dict[str, Any], str]] = {
    "nodes out of order": (
        {"nodes": (RELU, CONV)},
        "relu %y: expected %conv defined before its use, got a later or no definition",
    ),
    "output defined twice": (
        {"nodes": (CONV, RELU, replace(RELU, output="conv"))},
        "relu %conv: expected a name of its own, got one that is already defined",
    ),
    "input that is a constant too": (
        {"inputs": ("x", "w")},
        "tensor %w: expected one definition, got a second as an input",
    ),
    "output without a tensor": (
        {"nodes": (CONV, RELU, replace(RELU, output="z"))},
        "relu %z: expected a tensor for its output, got none",
    ),
    "input without a tensor": (
        {"inputs": ("x", "q")},
        "tensor %q: expected a tensor for the input, got none",
    ),
    "constant without a tensor": (
        with_constant("q", np.zeros(4, np.float32)),
        "tensor %q: expected a tensor for the constant, got none",
    ),
    "tensor under another name": (
        {"tensors": {**conv_relu().tensors, "x": Tensor("q", (1, 3, 8, 8))}},
        "tensor %x: expected its own name, got 'q'",
    ),
    "empty tensor": (with_tensor("x", 1, 0, 8, 8), "tensor %x: expected dimensions ≥ 1, got (1, 0, 8, 8)"),
    "tensor nobody makes": (
        with_tensor("q", 1),
        "tensor %q: expected an input, a constant or a node's output, got none of them",
    ),
    "float64 constant": (
        with_constant("b", np.zeros(4)),
        "tensor %b: expected a float32 constant, got float64",
    ),
    "constant of another shape": (
        with_constant("b", np.zeros(5, np.float32)),
        "tensor %b: expected a constant of shape (4,), got (5,)",
    ),
    "weight computed at run time": (
        {"inputs": ("x", "w"), "constants": {"b": np.zeros(4, np.float32)}},
        "conv2d %conv (conv1): expected a constant weight, got %w, computed at run time",
    ),
    "bias computed at run time": (
        {"inputs": ("x", "b"), "constants": {"w": np.zeros((4, 3, 3, 3), np.float32)}},
        "conv2d %conv (conv1): expected a constant bias, got %b, computed at run time",
    ),
    "declared shape that is wrong": (
        with_tensor("conv", 1, 4, 6, 6),
        "conv2d %conv (conv1): expected an output of shape (1, 4, 8, 8), got (1, 4, 6, 6)",
    ),
    "no output": ({"outputs": ()}, "graph: expected an output, got none"),
    "output named twice": ({"outputs": ("y", "y")}, "graph: expected distinct outputs, got ('y', 'y')"),
    "output that is an input": ({"outputs": ("y", "x")}, "tensor %x: expected an output made by a node"),
    "batch of none": ({"batch": 0}, "graph: expected a batch ≥ 1, got 0"),
    "batch within the shape": (
        {"batch": 2, **with_tensor("x", 2, 3, 8, 8)},
        "tensor %x: expected the shape of one image, 1 in axis 0, got (2, 3, 8, 8)",
    ),
}


def test_legal_graph_passes() -> None:
    for batch in (1, 4, None):
        verify(conv_relu(batch=batch))


@pytest.mark.parametrize("case", BROKEN_GRAPHS)
def test_broken_graph_is_refused(case: str) -> None:
    changes, message = BROKEN_GRAPHS[case]
    with pytest.raises(GraphError) as error:
        verify(conv_relu(**changes))
    assert str(error.value).startswith(f"verify: {message}")


def node_graph(node: Node, batch: int | None, **shapes: Shape) -> Graph:
    tensors = {name: Tensor(name, shape) for name, shape in shapes.items()}
    return Graph(node.inputs, (node.output,), (node,), tensors, {}, batch)


@pytest.mark.parametrize(
    ("node", "shapes", "message"),
    [
        (
            Reshape(inputs=("x",), output="y"),
            {"x": (1, 8), "y": (2, 4)},
            "reshape %y: expected one image, 1 in axis 0 of the output, got (2, 4)",
        ),
        (
            Binary(inputs=("x", "z"), output="y", kind="add"),
            {"x": (1, 3, 4), "z": (1, 4), "y": (1, 3, 4)},
            "add %y: expected inputs of the output's rank 3, got (1, 4)",
        ),
        (
            Softmax(inputs=("x",), output="y", axis=0),
            {"x": (1, 3), "y": (1, 3)},
            "softmax %y: expected an axis ≥ 1, got 0",
        ),
    ],
)
def test_image_axis_is_kept_in_a_batch(node: Node, shapes: dict[str, Shape], message: str) -> None:
    verify(node_graph(node, 1, **shapes))
    for batch in (2, None):
        with pytest.raises(GraphError) as error:
            verify(node_graph(node, batch, **shapes))
        assert str(error.value).startswith(f"verify: {message}")


X: dict[str, Shape] = {"x": (1, 4, 6, 6)}
IO = {"inputs": ("x",), "output": "y"}
UNORDERED = "slice %y: expected bounds in the order of its step, got"
XW = {"inputs": ("x", "w"), "output": "y"}
AB: dict[str, Shape] = {"x": (1, 3, 4), "w": (1, 4, 2), "y": (1, 3, 2)}
A, B, Y = views_of_product(AB["x"], AB["w"])
PRODUCT = Product(**XW, a=A, b=B, y=Y)
HEADS = View((2, 3, 4), (4, 8, 1))
QKV = {"q": HEADS, "k": HEADS, "v": HEADS, "y": HEADS}
XXX = {"inputs": ("x", "x", "x"), "output": "y"}
XWB = {"inputs": ("x", "w", "b"), "output": "y"}

BROKEN_NODES: list[tuple[Node, dict[str, Shape], str]] = [
    (Unary(inputs=("x", "x"), output="y", kind="relu"), X, "relu %y: expected 1 input, got 2"),
    (Binary(**IO, kind="add"), X, "add %y: expected 2 inputs, got 1"),
    (Conv2d(**IO), X, "conv2d %y: expected 2 or 3 inputs, got 1"),
    (Concat(inputs=(), output="y", axis=1), X, "concat %y: expected at least one input, got 0"),
    (Unary(inputs=("q",), output="y", kind="relu"), X, "relu %y: expected a defined input %q, got none"),
    (Conv2d(**XW, stride=(0, 1)), X, "conv2d %y: expected strides ≥ 1, got (0, 1)"),
    (Conv2d(**XW, dilation=(1, 0)), X, "conv2d %y: expected dilations ≥ 1, got (1, 0)"),
    (Conv2d(**XW, padding=(0, -1, 0, 0)), X, "conv2d %y: expected padding ≥ 0, got (0, -1, 0, 0)"),
    (Conv2d(**XW, groups=0), X, "conv2d %y: expected groups ≥ 1, got 0"),
    (
        Conv2d(**XW),
        {"x": (1, 4, 6), "w": (2, 4, 3, 3)},
        "conv2d %y: expected an input of rank 4, got (1, 4, 6)",
    ),
    (Conv2d(**XW), {**X, "w": (2, 4, 3)}, "conv2d %y: expected a weight of rank 4, got (2, 4, 3)"),
    (Conv2d(**XW), {**X, "w": (2, 3, 3, 3)}, "conv2d %y: expected 3 input channels, got 4"),
    (
        Conv2d(**XW, groups=2),
        {**X, "w": (3, 2, 3, 3)},
        "conv2d %y: expected output channels divisible by groups 2, got 3",
    ),
    (
        Conv2d(**XWB),
        {**X, "w": (2, 4, 3, 3), "b": (3,)},
        "conv2d %y: expected a bias of shape (2,), got (3,)",
    ),
    (Conv2d(**XW), {**X, "w": (2, 4, 7, 1)}, "conv2d %y: expected a padded size ≥ 7, the kernel's, got 6"),
    (
        ConvTranspose2d(**XW, output_padding=(1, 0)),
        {**X, "w": (4, 2, 3, 3)},
        "conv_transpose2d %y: expected 0 ≤ output_padding < max(stride, dilation) = (1, 1), got (1, 0)",
    ),
    (
        ConvTranspose2d(**XW),
        {**X, "w": (3, 2, 3, 3)},
        "conv_transpose2d %y: expected 3 input channels, got 4",
    ),
    (
        ConvTranspose2d(**XW, groups=3),
        {**X, "w": (4, 2, 3, 3)},
        "conv_transpose2d %y: expected input channels divisible by groups 3, got 4",
    ),
    (
        ConvTranspose2d(**XW, padding=(4, 0, 4, 0)),
        {**X, "w": (4, 2, 3, 3)},
        "conv_transpose2d %y: expected an output size ≥ 1, got 0",
    ),
    (MatMul(**XW), {"x": (4,), "w": (4, 2)}, "matmul %y: expected an input of rank ≥ 2, got (4,)"),
    (MatMul(**XW), {"x": (1, 4), "w": (1, 4, 2)}, "matmul %y: expected a weight of rank 2, got (1, 4, 2)"),
    (
        MatMul(**XW),
        {"x": (1, 4), "w": (5, 2)},
        "matmul %y: expected 5 columns, the weight's rows, got 4",
    ),
    (PRODUCT, {**AB, "y": (1, 3, 3)}, "product %y: expected each element of (1, 3, 3) once in y, got View"),
    (PRODUCT, {**AB, "w": (1, 4, 1)}, "product %y: expected a view b of elements < 4, got 7"),
    (PRODUCT, {"x": (1, 3, 4), "w": (1, 4, 2)}, "product %y: expected the output's shape, got none"),
    (replace(PRODUCT, b=A), AB, "product %y: expected a view b of shape (1, 4, 4), got (1, 3, 4)"),
    (
        replace(PRODUCT, y=View((1, 3, 2), (0, 1, 2))),
        AB,
        "product %y: expected each element of (1, 3, 2) once in y, got View",
    ),
    (
        replace(PRODUCT, a=replace(A, offset=-1)),
        AB,
        "product %y: expected a view a of lengths ≥ 1, strides and offset ≥ 0, got View",
    ),
    (
        replace(PRODUCT, a=View((1, 3, 4), (4, 1))),
        AB,
        "product %y: expected a view a of ≥ 2 axes with a stride each, got View",
    ),
    (replace(PRODUCT, scale=float("inf")), AB, "product %y: expected a finite scale, got inf"),
    (
        Attention(**XXX, **QKV, mask=View((2, 3, 3), (0, 3, 1))),
        {"x": (1, 3, 8)},
        "attention %y: expected 4 inputs, got 3",
    ),
    (
        Attention(inputs=("x",) * 4, output="y", **QKV, mask=View((2, 1, 3), (0, 0, 1))),
        {"x": (1, 3, 8)},
        "attention %y: expected a view mask of shape (2, 3, 3), got (2, 1, 3)",
    ),
    (
        Attention(**XXX, **{**QKV, "v": View((2, 2, 4), (4, 8, 1))}),
        {"x": (1, 3, 8)},
        "attention %y: expected a view k of shape (2, 2, 4), got (2, 3, 4)",
    ),
    (
        Attention(**XXX, **{**QKV, "k": replace(HEADS, offset=1)}),
        {"x": (1, 3, 8)},
        "attention %y: expected a view k of elements < 24, got 24",
    ),
    (Pool2d(**IO, kind="max", kernel=(0, 1)), X, "max_pool2d %y: expected a kernel ≥ 1, got (0, 1)"),
    (
        Pool2d(**IO, kind="max", kernel=(3, 3), stride=(2, 2)),
        {**X, "y": (1, 4, 4, 2)},
        "max_pool2d %y: expected an output (1, 4, 2..3, 2..3), got (1, 4, 4, 2)",
    ),
    (
        Pool2d(**IO, kind="avg", kernel=(2, 2), stride=(2, 2), padding=(2, 0, 0, 0)),
        X,
        "avg_pool2d %y: expected a pixel in every window, got none in window 0",
    ),
    (Reduce(**IO, kind="mean", axes=()), X, "reduce %y: expected axes sorted, distinct and ≥ 1, got ()"),
    (
        Reduce(**IO, kind="mean", axes=(0,)),
        X,
        "reduce %y: expected axes sorted, distinct and ≥ 1, got (0,)",
    ),
    (Reduce(**IO, kind="mean", axes=(4,)), X, "reduce %y: expected axes < 4, got (4,)"),
    (Unary(**IO, kind="clip", a=2.0, b=1.0), X, "clip %y: expected a ≤ b, got [2.0, 1.0]"),
    (Unary(**IO, kind="relu", a=2.0), X, "relu %y: expected no parameter a, got 2.0"),
    (Unary(**IO, kind="elu", a=float("nan")), X, "elu %y: expected a number as a, got nan"),
    (
        Binary(**XW, kind="mul"),
        {**X, "w": (5, 1, 1)},
        "mul %y: expected shapes that broadcast, (1, 4, 6, 6) with its like, got (5, 1, 1)",
    ),
    (Concat(**XW, axis=0), {**X, "w": X["x"]}, "concat %y: expected an axis ≥ 1, got 0"),
    (Concat(**XW, axis=4), {**X, "w": X["x"]}, "concat %y: expected an axis < 4, got 4"),
    (
        Concat(**XW, axis=1),
        {**X, "w": (1, 4, 6, 5)},
        "concat %y: expected inputs equal to (1, 4, 6, 6) but in axis 1, got (1, 4, 6, 5)",
    ),
    (Slice(**IO, axis=0, begin=0, end=1), X, "slice %y: expected an axis ≥ 1, got 0"),
    (Slice(**IO, axis=4, begin=0, end=1), X, "slice %y: expected an axis < 4, got 4"),
    (
        Slice(**IO, axis=1, begin=2, end=2),
        X,
        f"{UNORDERED} [2, 2)",
    ),
    (Slice(**IO, axis=1, begin=2, end=5), X, "slice %y: expected elements up to 3, got 4"),
    (Slice(**IO, axis=1, begin=4, end=1, step=-1), X, "slice %y: expected elements up to 3, got 4"),
    (
        Slice(**IO, axis=1, begin=1, end=2, step=-1),
        X,
        f"{UNORDERED} [1, 2)",
    ),
    (
        Slice(**IO, axis=1, begin=1, end=-2, step=-1),
        X,
        f"{UNORDERED} [1, -2)",
    ),
    (Slice(**IO, axis=1, begin=0, end=2, step=0), X, "slice %y: expected a step, got 0"),
    (Reshape(**IO), X, "reshape %y: expected the output's shape, got none"),
    (Reshape(**IO), {**X, "y": (1, 145)}, "reshape %y: expected a shape of 144 elements, got (1, 145)"),
    (Transpose(**IO, perm=(1, 0, 2, 3)), X, "transpose %y: expected a permutation that keeps axis 0"),
    (Transpose(**IO, perm=(0, 2, 1)), X, "transpose %y: expected an input of rank 3, got (1, 4, 6, 6)"),
    (ChannelShuffle(**IO, groups=0), X, "channel_shuffle %y: expected groups ≥ 1, got 0"),
    (ChannelShuffle(**IO, groups=3), X, "channel_shuffle %y: expected channels divisible by 3, got 4"),
    (Pad(**IO, widths=((0, 0), (0, -1))), X, "pad %y: expected widths ≥ 0 and (0, 0) on axis 0"),
    (Pad(**IO, widths=((0, 0), (0, 0), (0, 0), (0, 6)), mode="reflect"), X, "pad %y: expected widths that"),
    (Pad(**IO, widths=((0, 0), (1, 1))), X, "pad %y: expected an input of rank 2, got (1, 4, 6, 6)"),
    (
        Resize(**IO, mode="nearest", coordinates="asymmetric", scales=(0.0, 1.0)),
        X,
        "resize %y: expected positive scales, got (0.0, 1.0)",
    ),
    (
        Resize(**IO, mode="nearest", coordinates="asymmetric"),
        X,
        "resize %y: expected the output's shape or scales, got neither",
    ),
    (
        Resize(**IO, mode="nearest", coordinates="asymmetric"),
        {**X, "y": (1, 8, 6, 6)},
        "resize %y: expected an output (1, 4, H ≥ 1, W ≥ 1), got (1, 8, 6, 6)",
    ),
    (
        Resize(**IO, mode="nearest", coordinates="asymmetric", scales=(2.0, 2.0)),
        {**X, "y": (1, 4, 12, 24)},
        "resize %y: expected sizes that fit the scales (2.0, 2.0), got (12, 24)",
    ),
    (
        GridSample(**XW, mode="nearest", padding="zeros", corners=False),
        {**X, "w": (1, 5, 5, 2)},
        "grid_sample %y: expected x [1, C, H, W] and a grid [1, 2, h, w], got ((1, 4, 6, 6), (1, 5, 5, 2))",
    ),
    (Softmax(**IO, axis=-1), X, "softmax %y: expected an axis ≥ 0, got -1"),
    (Softmax(**IO, axis=4), X, "softmax %y: expected an axis < 4, got 4"),
    (
        GroupNorm(**IO, groups=3, epsilon=0.1),
        X,
        "group_norm %y: expected groups that divide 4 channels, got 3",
    ),
    (
        GroupNorm(**XW, groups=2, epsilon=0.1),
        {**X, "w": (2,)},
        "group_norm %y: expected a gamma of 4 numbers, got (2,)",
    ),
    (
        GroupNorm(**IO, groups=1, epsilon=0.1),
        {"x": (1, 4, 6)},
        "group_norm %y: expected an input of rank 4",
    ),
    (LayerNorm(**IO, axis=0, epsilon=0.1), X, "layer_norm %y: expected an axis in 1..3, got 0"),
    (LayerNorm(**IO, axis=1, epsilon=-1.0), X, "layer_norm %y: expected an epsilon ≥ 0, got -1.0"),
    (
        LayerNorm(**XW, axis=2, epsilon=0.1),
        {**X, "w": (6,)},
        "layer_norm %y: expected a gamma of 36 numbers, got (6,)",
    ),
    (Lrn(**IO, size=0, alpha=1, beta=1, bias=1), X, "lrn %y: expected a size ≥ 1, got 0"),
    (Node(**IO), X, "node %y: expected an op of graph/ops.py, got another"),
]


@pytest.mark.parametrize(("node", "shapes", "message"), BROKEN_NODES, ids=[m for *_, m in BROKEN_NODES])
def test_broken_node_is_refused(node: Node, shapes: dict[str, Shape], message: str) -> None:
    with pytest.raises(GraphError) as error:
        infer_shape(node, shapes)
    assert str(error.value).startswith(f"verify: {message}")


def test_resize_by_scales_rounds_down() -> None:
    node = Resize(**IO, mode="nearest", coordinates="asymmetric", scales=(1.5, 0.4))
    assert infer_shape(node, X) == (1, 4, 9, 2)


def test_a_window_within_the_padding_has_a_mean_only_with_padding_counted() -> None:
    # six pixels and one of padding, windows of 1 every 6: in floor mode the second sees the padding
    attributes: dict[str, Any] = {"kernel": (1, 1), "stride": (6, 6), "padding": (0, 0, 1, 1), **IO}
    ceil, floor = {**X, "y": (1, 4, 1, 1)}, {**X, "y": (1, 4, 2, 2)}
    assert infer_shape(Pool2d(kind="max", **attributes), ceil) == (1, 4, 1, 1)
    assert infer_shape(Pool2d(kind="avg", count_include_pad=True, **attributes), floor) == (1, 4, 2, 2)
    for kind in ("max", "avg"):
        with pytest.raises(GraphError, match="expected a pixel in every window, got none in window 1"):
            infer_shape(Pool2d(kind=kind, **attributes), floor)


def test_flops_are_two_per_multiply_add() -> None:
    conv, relu = conv_relu().nodes
    assert count_flops(conv, conv_relu()) == 2 * (4 * 8 * 8) * (3 * 3 * 3)
    assert count_flops(relu, conv_relu()) == 0
    matmul = node_graph(MatMul(**XW), 1, x=(1, 7, 5), w=(5, 3), y=(1, 7, 3))
    assert count_flops(matmul.nodes[0], matmul) == 2 * 7 * 5 * 3
    product = node_graph(PRODUCT, 1, x=AB["x"], w=AB["w"], y=AB["y"])
    assert count_flops(PRODUCT, product) == 2 * 3 * 4 * 2
    attention = Attention(**XXX, **QKV)
    graph = node_graph(attention, 1, x=(1, 3, 8), y=(1, 3, 8))
    assert count_flops(attention, graph) == 2 * 2 * (3 * 3 * 4 + 3 * 3 * 4)
    transposed = ConvTranspose2d(**XW, stride=(2, 2), groups=2)
    graph = node_graph(transposed, 1, x=(1, 4, 6, 6), w=(4, 3, 2, 2), y=(1, 6, 12, 12))
    assert count_flops(transposed, graph) == 2 * (4 * 6 * 6) * (3 * 2 * 2)


def test_a_name_that_is_no_tensors_is_said_of_open_sizes_too() -> None:
    x = Tensor("x", (1, open_size("size[0]", 24), 8))
    node = Unary(inputs=("none",), output="y", kind="relu")
    tensors = {"x": x, "y": replace(x, name="y")}
    graph = Graph(inputs=("x",), outputs=("y",), nodes=(node,), tensors=tensors)
    with pytest.raises(GraphError, match="relu %y: expected %none defined before its use"):
        verify(graph)
