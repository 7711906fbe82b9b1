"""Ops on bytes between quantised ones, such as a MaxPool, as ops on floats between two conversions.

So a network whose quantiser left these conversions out is the one of another that wrote them, and regions
take the op: its kernel moves bytes, or compares them.  The scale is 1, with which nothing is rounded.
What a linear Resize weighs is cut off between the two, as ONNX Runtime does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from convoy.relax.importer.prepare import infer_types
from convoy.relax.importer.read import Array, Model

_BYTES = {TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8}
_OPS = frozenset(
    {
        "Concat", "DepthToSpace", "Flatten", "MaxPool", "Pad", "Reshape", "Resize", "Slice", "SpaceToDepth",
        "Split", "Squeeze", "Transpose", "Unsqueeze",
    }
)  # fmt: skip
"""Ops that move elements or take the largest, and Resize, which may weigh them."""


def surround_bytes(model: Model) -> None:
    """Put conversions around each such op of a quantised network."""
    if not any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
        return
    if not any(node.op_type in _OPS for node in model.graph.node):
        return
    _turn_once(model)
    kinds = {name: kind.tensor_type.elem_type for name, kind in infer_types(model).items()}
    known = model.constants()
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        data = list(node.input) if node.op_type == "Concat" else list(node.input[:1])
        found = {kinds.get(name) for name in data}
        taken = node.op_type in _OPS and not node.domain and _is_alike(node, known)
        if not taken or known.keys() & {*data} or len(found) != 1:
            nodes.append(node)
            continue
        kind = found.pop()
        nodes += [node] if kind not in _BYTES else _surround(model, node, data, kind, known)
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.name_nodes()


def _is_alike(node: onnx.NodeProto, known: Mapping[str, Array]) -> bool:
    """Does the op make of floats what it makes of bytes, once they are cut off?"""
    if node.op_type == "MaxPool":
        return len([name for name in node.output if name]) == 1  # indices are no floats
    if node.op_type == "Pad":
        return not _has_value(node) or node.input[2] in known
    return node.op_type != "Resize" or _is_exact(node, known)


def _is_exact(node: onnx.NodeProto, known: Mapping[str, Array]) -> bool:
    """Does a Resize copy pixels, or weigh them by numbers that no engine rounds, before it cuts off?"""
    how = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    places = how.get("coordinate_transformation_mode", b"half_pixel")
    if places == b"tf_crop_and_resize" or how.get("antialias"):
        return False
    if not _weighs(node):
        return bool(how.get("mode", b"nearest") == b"nearest")
    scales = known.get(node.input[2]) if len(node.input) > 2 else None
    halves = scales is not None and scales.size > 0 and bool((np.frexp(scales)[0] == 0.5).all())
    return halves and places != b"align_corners"


def _has_value(node: onnx.NodeProto) -> bool:
    return len(node.input) > 2 and bool(node.input[2])


def _weighs(node: onnx.NodeProto) -> bool:
    return node.op_type == "Resize" and any(a.name == "mode" and a.s == b"linear" for a in node.attribute)


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
    model: Model,
    node: onnx.NodeProto,
    data: Sequence[str],
    kind: TensorProto.DataType,
    known: Mapping[str, Array],
) -> list[onnx.NodeProto]:
    folder = f"{node.name}/bytes"
    one, zero = f"{folder}/scale", f"{folder}/zero"
    model.add_constant(one, np.array(1, np.float32))
    model.add_constant(zero, np.array(0, _BYTES[kind]))
    before, behind = [], []
    for i, name in enumerate(data):
        node.input[i] = f"{folder}/in{i}"
        before.append(helper.make_node("DequantizeLinear", [name, one, zero], [node.input[i]]))
    if node.op_type == "Pad" and _has_value(node):
        model.add_constant(f"{folder}/value", known[node.input[2]].astype(np.float32))
        node.input[2] = f"{folder}/value"
    weighs = _weighs(node)
    for i, name in enumerate(node.output):
        if name:
            node.output[i] = made = f"{folder}/out{i}"
            behind += _cut(made, f"{folder}/cut", kind) if weighs else []
            made = f"{folder}/cut" if weighs else made
            behind.append(helper.make_node("QuantizeLinear", [made, one, zero], [name]))
    return [*before, node, *behind]


def _cut(x: str, whole: str, kind: TensorProto.DataType) -> list[onnx.NodeProto]:
    """Towards zero, as C casts: ⌊max(x, 0)⌋ - ⌊max(-x, 0)⌋, of which what has no sign needs the first."""
    if kind == TensorProto.UINT8:
        return [helper.make_node("Floor", [x], [whole])]
    names = [f"{whole}/{part}" for part in ("above", "least", "negative", "below", "most")]
    above, least, negative, below, most = names
    return [
        helper.make_node("Relu", [x], [above]),
        helper.make_node("Floor", [above], [least]),
        helper.make_node("Neg", [x], [negative]),
        helper.make_node("Relu", [negative], [below]),
        helper.make_node("Floor", [below], [most]),
        helper.make_node("Sub", [least, most], [whole]),
    ]
