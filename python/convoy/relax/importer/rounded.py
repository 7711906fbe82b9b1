"""Numbers that are rounded to 16 bits and back, as floats: regions have no integers so wide.

dequantize(quantize(x))  =>  clip(round(x / scale), least, most) · scale

Steps from the zero point are whole numbers that float32 holds, so this is what ONNX defines.  A NaN becomes
the least number, as in ONNX Runtime.  Integers have no -0: a pair stays where something may divide by it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from convoy.onnx_file import inner_graphs, names_read
from convoy.relax.importer.prepare import infer_types
from convoy.relax.importer.read import Array, Model

_WIDE = {TensorProto.INT16: np.int16, TensorProto.UINT16: np.uint16}
_LEAST_SCALE = np.finfo(np.float32).tiny
"""A region multiplies by 1 / scale, which has to be finite."""
_SUMS = frozenset(
    {
        "AveragePool", "Conv", "ConvTranspose", "Gemm", "GlobalAveragePool", "InstanceNormalization",
        "LayerNormalization", "LogSoftmax", "MatMul", "QuantizeLinear", "ReduceMean", "ReduceSum",
        "Sigmoid", "Softmax",
    }
)  # fmt: skip
"""Ops of whose result no zero has the sign of one they read."""


@dataclass(frozen=True)
class _Steps:
    """What a node quantises to."""

    scale: Array
    """In the shape in which it stands beside the data."""
    least: float
    most: float
    """Steps from the zero point."""


def round_wide(model: Model) -> None:
    """Write out each such pair, if nothing but conversions back reads the integers."""
    if not any(node.op_type == "QuantizeLinear" for node in model.graph.node):
        return
    types = infer_types(model)
    known = model.constants()
    readers: dict[str, list[onnx.NodeProto]] = {}
    inside = {name for node in model.graph.node for graph in inner_graphs(node) for name in _reads(graph)}
    kept = inside | {value.name for value in model.graph.output}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    nodes: list[onnx.NodeProto] = []
    changed = False
    for node in model.graph.node:
        steps = _steps(node, types, known)
        back = readers.get(node.output[0], []) if node.output else []
        fits = back and all(_undoes(other, node, types, known) for other in back)
        if steps is None or not fits or node.output[0] in kept or _divides(back, readers, inside):
            nodes.append(node)
            continue
        nodes += _write(model, node, steps)
        for other in back:
            del other.attribute[:], other.input[1:]
            other.op_type = "Identity"
        changed = True
    if changed:
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.name_nodes()


def _steps(
    node: onnx.NodeProto, types: dict[str, onnx.TypeProto], known: dict[str, Array]
) -> _Steps | None:
    if node.op_type != "QuantizeLinear" or len(node.input) != 3 or _attribute(node, "block_size"):
        return None
    x, made = (types[n].tensor_type if n in types else None for n in (node.input[0], node.output[0]))
    scale, zero = (known.get(name) for name in node.input[1:])
    if x is None or made is None or scale is None or zero is None or scale.dtype != np.float32:
        return None
    kind = _WIDE.get(made.elem_type)
    if kind is None or x.elem_type != TensorProto.FLOAT or not x.HasField("shape"):
        return None
    if not (zero == zero.ravel()[:1]).all() or not np.all((scale >= _LEAST_SCALE) & np.isfinite(scale)):
        return None
    if scale.size > 1:
        rank = len(x.shape.dim)
        lies = [1] * rank
        lies[_attribute(node, "axis", 1) % rank if rank > 1 else 0] = -1
        scale = scale.reshape(lies)
    bounds, point = np.iinfo(kind), int(zero.ravel()[0])
    return _Steps(scale.reshape(()) if scale.size == 1 else scale, bounds.min - point, bounds.max - point)


def _undoes(
    back: onnx.NodeProto, node: onnx.NodeProto, types: dict[str, onnx.TypeProto], known: dict[str, Array]
) -> bool:
    """Does a node dequantise what another quantises, by the same numbers?"""
    if (
        back.op_type != "DequantizeLinear"
        or len(back.input) != 3
        or len(node.input) != 3
        or back.input[0] != node.output[0]
    ):
        return False
    made = types.get(back.output[0])
    if made is None or made.tensor_type.elem_type != TensorProto.FLOAT or _attribute(back, "block_size"):
        return False
    pairs = [(known.get(a), known.get(b)) for a, b in zip(back.input[1:], node.input[1:], strict=True)]
    same = all(a is not None and b is not None and np.array_equal(a.ravel(), b.ravel()) for a, b in pairs)
    each = pairs[0][0] is not None and pairs[0][0].size > 1
    return same and (not each or _attribute(back, "axis", 1) == _attribute(node, "axis", 1))


def _reads(graph: onnx.GraphProto) -> set[str]:
    return {name for node in graph.node for name in names_read(node)} | {o.name for o in graph.output}


def _divides(
    back: Iterable[onnx.NodeProto], readers: Mapping[str, list[onnx.NodeProto]], inside: Collection[str]
) -> bool:
    """May something divide by what nodes make, so that the sign of a zero shows?  ``inside`` may."""
    names = [node.output[0] for node in back]
    seen = set(names)
    while names:
        name = names.pop()
        if name in inside:
            return True
        for node in readers.get(name, ()):
            if node.op_type == "Reciprocal" or (node.op_type == "Div" and name in node.input[1:]):
                return True
            made = set(node.output) - seen if node.op_type not in _SUMS else set()
            seen |= made
            names += made
    return False


def _write(model: Model, node: onnx.NodeProto, steps: _Steps) -> list[onnx.NodeProto]:
    """The nodes that make, in place of the integers, the floats they stand for."""
    folder = f"{node.name}/rounded"
    numbers = {"scale": steps.scale, "least": steps.least, "most": steps.most}
    for name, value in numbers.items():
        model.add_constant(f"{folder}/{name}", np.asarray(value, np.float32))
    of = {name: f"{folder}/{name}" for name in numbers}
    chain = [
        ("Div", [node.input[0], of["scale"]], "steps"),
        ("IsNaN", [f"{folder}/steps"], "odd"),
        ("Where", [f"{folder}/odd", of["least"], f"{folder}/steps"], "all"),
        ("Round", [f"{folder}/all"], "whole"),
        ("Clip", [f"{folder}/whole", of["least"], of["most"]], "held"),
        ("Mul", [f"{folder}/held", of["scale"]], ""),
    ]
    return [
        helper.make_node(
            op, inputs, [f"{folder}/{made}" if made else node.output[0]], name=f"{folder}/{op}"
        )
        for op, inputs, made in chain
    ]


def _attribute(node: onnx.NodeProto, name: str, default: int = 0) -> int:
    return next((int(a.i) for a in node.attribute if a.name == name), default)
