"""The least work a network is: FLOPs computed directly, FLOPs with Winograd, bytes of memory traffic.

A *direct* FLOP count is two per multiply-add of convolutions, products and recurrent layers.  The
*Winograd* count takes, for each 3x3 convolution of stride 1 with at least ``CHANNELS`` input channels a
group, also of the slices of a volume, the products of F(4,3), the last tiles no larger than what is left;
transforms are free.  Divided by the machine's peak, the first bounds what any direct kernel can do, the
second what any kernel with such tiles can do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

import onnx
from onnx import shape_inference

from convoy.bench.inputs import Arrays

CHANNELS = 16
"""Below, the transforms cost more than the products they save."""
_INLINE = 1024
"""Larger initializers are left out for shape inference, which would copy them."""

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Work:
    direct: int
    """FLOPs."""
    winograd: int
    """FLOPs."""
    traffic: int
    """Bytes of weights, inputs and outputs: what must cross memory if all else stays in cache."""


def count_work(model: onnx.ModelProto, inputs: Arrays, outputs: Sequence[tuple[int, ...]]) -> Work | None:
    """The work of one run on ``inputs``; None where ONNX cannot infer a shape that matters."""
    shapes = _infer_shapes(model, inputs)
    direct = winograd = 0
    for node in model.graph.node:
        try:
            one, two = _count_node(node, shapes)
        except KeyError:
            return None
        direct += one
        winograd += two
    weights = sum(prod(tensor.dims) for tensor in model.graph.initializer)
    values = weights + sum(array.size for array in inputs.values()) + sum(map(prod, outputs))
    return Work(direct, winograd, 4 * values)


def _count_node(node: onnx.NodeProto, shapes: Shapes) -> tuple[int, int]:
    """Direct and Winograd FLOPs; KeyError if a shape is not known."""
    if node.op_type == "Conv":
        weight, result = shapes[node.input[1]], shapes[node.output[0]]
        direct = 2 * prod(result) * prod(weight[1:])
        return direct, min(direct, _winograd(node, weight, result, direct))
    if node.op_type == "ConvTranspose":
        direct = 2 * prod(shapes[node.input[0]]) * prod(shapes[node.input[1]][1:])
        return direct, direct
    if node.op_type in ("Gemm", "MatMul"):
        transposed = any(a.name == "transA" and a.i for a in node.attribute)
        inner = shapes[node.input[0]][0 if transposed else -1]
        direct = 2 * prod(shapes[node.output[0]]) * inner
        return direct, direct
    if node.op_type in ("RNN", "GRU", "LSTM"):
        steps, images, _ = shapes[node.input[0]]
        direct = 2 * steps * images * sum(prod(shapes[name]) for name in node.input[1:3])
        return direct, direct
    return 0, 0


def _winograd(node: onnx.NodeProto, weight: tuple[int, ...], result: tuple[int, ...], direct: int) -> int:
    attributes = {a.name: list(a.ints) for a in node.attribute if a.ints}
    plain = set(attributes.get("strides", [1])[-2:]) == {1}
    if weight[-2:] != (3, 3) or len(weight) < 4 or not plain or weight[1] < CHANNELS:
        return direct
    *slices, height, width = result  # the taps of a volume along its depth are products of each
    phases = zip((height, width), attributes.get("dilations", [1, 1])[-2:], strict=True)
    points = prod(size + 2 * _count_tiles(size, dilation) for size, dilation in phases)
    return 2 * prod(slices) * prod(weight[1:-2]) * points


def _count_tiles(size: int, dilation: int) -> int:
    """Tiles of at most four outputs, of every ``dilation``-th output; each has two more points."""
    return sum(ceil(len(range(phase, size, dilation)) / 4) for phase in range(dilation))


def _infer_shapes(model: onnx.ModelProto, inputs: Arrays) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of which ONNX can tell every size."""
    skeleton = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = skeleton.graph
    graph.name = "skeleton"
    graph.node.extend(model.graph.node)
    for output in model.graph.output:
        graph.output.add(name=output.name).type.tensor_type.elem_type = output.type.tensor_type.elem_type
    known = {name: array.shape for name, array in inputs.items()}
    types = {value.name: value.type.tensor_type.elem_type for value in model.graph.input}
    for tensor in model.graph.initializer:
        if prod(tensor.dims) <= _INLINE and tensor.data_location != onnx.TensorProto.EXTERNAL:
            graph.initializer.append(tensor)
        else:
            types[tensor.name] = tensor.data_type
        known[tensor.name] = tuple(tensor.dims)
    inline = {tensor.name for tensor in graph.initializer}
    for name, shape in known.items():
        if name not in inline:
            graph.input.append(onnx.helper.make_tensor_value_info(name, types[name], shape))
    inferred = shape_inference.infer_shapes(skeleton, data_prop=True).graph
    for value in (*inferred.value_info, *inferred.output):
        sizes = tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        if sizes and all(sizes):
            known[value.name] = sizes
    return known
