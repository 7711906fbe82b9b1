"""The light models of the ``onnx`` package: real graphs whose weights are all 0.02.

Every weight is replaced by a seeded random one that suits its role, so that activations keep their
size from layer to layer, outputs differ from class to class and depend on the input.
"""

from __future__ import annotations

import math
import zlib
from itertools import pairwise
from pathlib import Path

import onnx
from onnx import numpy_helper

from convoy.zoo.weights import fill_initializer

Role = tuple[str, int]
"""An op and the position of the weight among its inputs."""

_SPECS: dict[Role, str] = {
    ("Conv", 2): "normal:0.1",
    ("Gemm", 2): "normal:0.1",
    ("BatchNormalization", 1): "uniform:0.5:1",
    ("BatchNormalization", 2): "normal:0.1",
    ("BatchNormalization", 3): "normal:0.1",
    ("BatchNormalization", 4): "uniform:0.5:1.5",
    ("Mul", 1): "uniform:0.5:1.5",
    ("Add", 1): "normal:0.1",
}
"""Seedless; the weights of Conv and Gemm are scaled by their fan-in."""

_SHAPERS = ("Reshape", "Unsqueeze")
"""Ops between a weight and the op that uses it."""


def load_light(name: str, *, inner: int | None = None) -> onnx.ModelProto:
    """The light model ``name`` with its weights as initializers and only its data as inputs.

    ``inner``: the most channels that a dense layer hands to the next; None: as many as it has.
    """
    folder = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    model = onnx.load(folder / f"light_{name}.onnx")
    _replace_generated_weights(model.graph)
    _remove_unread_initializers(model.graph)
    if inner is not None:
        _narrow_dense(model.graph, inner)
    _fill_weights(model.graph)
    initialized = {initializer.name for initializer in model.graph.initializer}
    read = {name for node in model.graph.node for name in node.input}
    data = [value for value in model.graph.input if value.name in read - initialized]
    del model.graph.input[:]
    model.graph.input.extend(data)
    model.ir_version = max(model.ir_version, 4)  # from 4 on an initializer need not be an input
    return model


def _replace_generated_weights(graph: onnx.GraphProto) -> None:
    """ConstantOfShape nodes become empty initializers of the shape they make."""
    shapes = {i.name: i for i in graph.initializer if i.data_type == onnx.TensorProto.INT64}
    kept = []
    for node in graph.node:
        if node.op_type != "ConstantOfShape":
            kept.append(node)
            continue
        dims = numpy_helper.to_array(shapes[node.input[0]]).tolist()
        graph.initializer.add(name=node.output[0], data_type=onnx.TensorProto.FLOAT, dims=dims)
    del graph.node[:]
    graph.node.extend(kept)


def _remove_unread_initializers(graph: onnx.GraphProto) -> None:
    read = {name for node in graph.node for name in node.input}
    unread = [i for i, initializer in enumerate(graph.initializer) if initializer.name not in read]
    for i in reversed(unread):
        del graph.initializer[i]


def _narrow_dense(graph: onnx.GraphProto, most: int) -> None:
    """Dense layers from the second on read ``most`` channels at most; who makes those makes fewer."""
    tensors = {initializer.name: initializer for initializer in graph.initializer}
    dense = [[tensors[name] for name in node.input[1:]] for node in graph.node if node.op_type == "Gemm"]
    for (weight, bias), (reader, _) in pairwise(dense):
        reader.dims[1] = weight.dims[0] = bias.dims[0] = min(most, weight.dims[0])


def _fill_weights(graph: onnx.GraphProto) -> None:
    roles = _find_roles(graph)
    for initializer in graph.initializer:
        if initializer.data_type != onnx.TensorProto.FLOAT:
            continue
        op, position = roles[initializer.name]
        seed = zlib.crc32(initializer.name.encode())
        if position == 1 and op in ("Conv", "Gemm"):
            fan_in = math.prod(initializer.dims[1:]) if op == "Conv" else initializer.dims[-1]
            fill_initializer(initializer, f"normal:{math.sqrt(2 / fan_in)}:{seed}")
        else:
            fill_initializer(initializer, f"{_SPECS[op, position]}:{seed}")


def _find_roles(graph: onnx.GraphProto) -> dict[str, Role]:
    """What each tensor that feeds an op is to it, seen through reshapes."""
    roles: dict[str, Role] = {}
    for node in reversed(graph.node):
        for position, name in enumerate(node.input):
            role = (node.op_type, position)
            if node.op_type in _SHAPERS and position == 0:
                role = roles.get(node.output[0], role)
            roles[name] = role
    return roles
