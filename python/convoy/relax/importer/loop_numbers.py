"""The number of a Loop's step, and whether there is one, in the shapes that the body says.

They are scalars, and ONNX Runtime takes bodies that have them with an axis of one: PyTorch's older
exporter writes such where the count of steps has one.
"""

from __future__ import annotations

import onnx
from onnx import helper


def take_numbers(node: onnx.NodeProto) -> onnx.NodeProto:
    """A Loop whose body takes both as scalars, and reshapes them to what it says."""
    given = node.attribute[0].g.input[:2]
    if all(len(value.type.tensor_type.shape.dim) != 1 for value in given):
        return node
    made = onnx.NodeProto()
    made.CopyFrom(node)
    body = made.attribute[0].g
    nodes = []
    for value in body.input[:2]:
        shape = value.type.tensor_type.shape
        if len(shape.dim) == 1:
            name, scalar, axis = value.name, f"{value.name} as scalar", f"axis of {value.name}"
            body.initializer.append(helper.make_tensor(axis, onnx.TensorProto.INT64, [1], [1]))
            nodes.append(helper.make_node("Reshape", [scalar, axis], [name], name=f"{name} with its axis"))
            value.name = scalar
            del shape.dim[:]
    nodes += body.node
    del body.node[:]
    body.node.extend(nodes)
    return made
