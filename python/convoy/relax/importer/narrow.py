"""Integers of 4 or 2 bits in bytes: TVM stores none of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convoy.errors import ModelError
from convoy.onnx_file import inner_graphs
from convoy.relax.importer.prepare import infer_types
from convoy.relax.importer.read import Array, Model
from convoy.relax.importer.scales import NARROW

_BYTES = {"int4": np.int8, "uint4": np.uint8, "int2": np.int8, "uint2": np.uint8}
_BOUNDED = frozenset({"Cast", "CastLike"})
"""Ops that make numbers fit the type of their result, so that a wider one would change them."""
_BOUNDS = {"int4": (-8, 7), "uint4": (0, 15), "int2": (-2, 1), "uint2": (0, 3)}


def widen_narrow(model: Model) -> None:
    """Let numbers of 4 or 2 bits be bytes; what reads them reads the same numbers.

    What quantises to so few bits quantises to bytes, which are cut: a byte holds each of these numbers.

    Raises
    ------
    ModelError
        For inputs, outputs and casts of so few bits.
    """
    kinds = {name: kind.tensor_type.elem_type for name, kind in infer_types(model).items()}
    for value in model.inputs():
        _refuse(model, f"input {value.name}", kinds.get(value.name, 0), "make it a constant, or of 8 bits")
    for node in model.graph.node:
        for name in node.output if node.op_type in _BOUNDED else ():
            at = f"{node.op_type} {node.name}"
            _refuse(model, at, kinds.get(name, 0), "quantise to int8 or uint8")
    _cut_bytes(model, kinds)
    for output in model.graph.output:
        _refuse(model, f"output {output.name}", kinds.get(output.name, 0), "export it as int8 or uint8")
    for name, array in model.weights.items():
        model.weights[name] = _in_bytes(array)
    for value in model.graph.input:
        if value.name in model.weights:
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(
                model.weights[value.name].dtype
            )
    for tensor in _tensors(model.graph):
        if tensor.data_type in NARROW:
            tensor.CopyFrom(numpy_helper.from_array(_in_bytes(numpy_helper.to_array(tensor)), tensor.name))


def _cut_bytes(model: Model, kinds: Mapping[str, int]) -> None:
    """Quantise to bytes, and cut these, in place of fewer bits."""
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        nodes.append(node)
        narrow = NARROW.get(kinds.get(node.output[0], 0)) if node.op_type == "QuantizeLinear" else None
        if narrow is None:
            continue
        kind = _BYTES[narrow]
        for attribute in node.attribute:
            if attribute.name == "output_dtype":
                attribute.i = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
        made, wide = node.output[0], f"{node.name}/bytes"
        ends = [f"{node.name}/{end}" for end in ("least", "most")]
        for end, bound in zip(ends, _BOUNDS[narrow], strict=True):
            model.add_constant(end, np.array(bound, kind))
        node.output[0] = wide
        nodes.append(helper.make_node("Clip", [wide, *ends], [made]))
    if len(nodes) > len(model.graph.node):
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        model.name_nodes()


def _refuse(model: Model, at: str, kind: int, remedy: str) -> None:
    if kind in NARROW:
        problem = f"expected elements of 8 bits or more, got {NARROW[kind]}"
        raise ModelError("import", f"{model.name}: {at}", problem, remedy)


def _in_bytes(array: Array) -> Array:
    wide = _BYTES.get(array.dtype.name)
    return array if wide is None else array.astype(wide)


def _tensors(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    """The constants of a graph, and of graphs within its nodes."""
    yield from graph.initializer
    for node in graph.node:
        yield from (attribute.t for attribute in node.attribute if attribute.HasField("t"))
        for inner in inner_graphs(node):
            yield from _tensors(inner)
