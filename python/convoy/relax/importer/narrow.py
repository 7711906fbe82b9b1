"""Integers of 4 or 2 bits in bytes: TVM stores none of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from convoy.errors import ModelError
from convoy.onnx_file import inner_graphs
from convoy.relax.importer.prepare import infer_types
from convoy.relax.importer.read import Array, Model
from convoy.relax.importer.scales import NARROW

_BYTES = {"int4": np.int8, "uint4": np.uint8, "int2": np.int8, "uint2": np.uint8}
_BOUNDED = frozenset({"Cast", "CastLike", "QuantizeLinear"})
"""Ops that make numbers fit the type of their result, so that a wider one would change them."""


def widen_narrow(model: Model) -> None:
    """Let constants of 4 or 2 bits be of bytes; what reads them reads the same numbers.

    Raises
    ------
    ModelError
        For what a run has in so few bits: inputs, outputs, and numbers that are rounded to them.
    """
    kinds = {name: kind.tensor_type.elem_type for name, kind in infer_types(model).items()}
    for value in model.inputs():
        _refuse(model, f"input {value.name}", kinds.get(value.name, 0), "make it a constant, or of 8 bits")
    for node in model.graph.node:
        for name in node.output if node.op_type in _BOUNDED else ():
            at = f"{node.op_type} {node.name}"
            _refuse(model, at, kinds.get(name, 0), "quantise to int8 or uint8")
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
