"""Ops on bytes between quantised ones, such as a MaxPool, as ops on floats between two conversions.

So a network whose quantiser left these conversions out is the one of another that wrote them, and regions
take the op: its kernel moves bytes, or compares them.  The scale is 1, with which nothing is rounded.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from convoy.relax.importer.prepare import infer_types
from convoy.relax.importer.read import Model

_BYTES = {TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8}
_OPS = frozenset(
    {
        "Concat", "DepthToSpace", "Flatten", "MaxPool", "Reshape", "Slice", "SpaceToDepth", "Split",
        "Squeeze", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Ops that move elements or take the largest."""


def surround_bytes(model: Model) -> None:
    """Put conversions around each such op of a quantised network."""
    if not any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        return
    if not any(node.op_type in _OPS for node in model.graph.node):
        return
    _turn_once(model)
    kinds = {name: kind.tensor_type.elem_type for name, kind in infer_types(model).items()}
    known = set(model.constants())
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        data = list(node.input) if node.op_type == "Concat" else list(node.input[:1])
        made = [name for name in node.output if name]
        found = {kinds.get(name) for name in data}
        alone = node.op_type == "MaxPool" and len(made) > 1  # its indices are no floats
        if node.op_type not in _OPS or node.domain or alone or known & {*data} or len(found) != 1:
            nodes.append(node)
            continue
        kind = found.pop()
        nodes += [node] if kind not in _BYTES else _surround(model, node, data, kind)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.name_nodes()


def _turn_once(model: Model) -> None:
    """Two transposes that undo each other are none: ops whose channels come last follow one another."""
    turned: dict[str, tuple[str, list[int]]] = {}
    for node in model.graph.node:
        order = next((list(a.ints) for a in node.attribute if a.name == "perm"), [])
        if node.op_type != "Transpose" or node.domain or not order:
            continue
        x, before = turned.get(node.input[0], ("", []))
        if len(before) == len(order) and [before[i] for i in order] == sorted(order):
            del node.attribute[:]
            node.op_type, node.input[0] = "Identity", x
        else:
            turned[node.output[0]] = node.input[0], order


def _surround(
    model: Model, node: onnx.NodeProto, data: Sequence[str], kind: TensorProto.DataType
) -> list[onnx.NodeProto]:
    folder = f"{node.name}/bytes"
    one, zero = f"{folder}/scale", f"{folder}/zero"
    model.add_constant(one, np.array(1, np.float32))
    model.add_constant(zero, np.array(0, _BYTES[kind]))
    before, behind = [], []
    for i, name in enumerate(data):
        node.input[i] = f"{folder}/in{i}"
        before.append(helper.make_node("DequantizeLinear", [name, one, zero], [node.input[i]]))
    for i, name in enumerate(node.output):
        if name:
            node.output[i] = f"{folder}/out{i}"
            behind.append(helper.make_node("QuantizeLinear", [node.output[i], one, zero], [name]))
    return [*before, node, *behind]
