"""A model of one type of floats in a wider one.

ONNX Runtime has few kernels for bfloat16, and Convoy computes such a model in float32.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper

from convoy.bench.inputs import Arrays
from convoy.onnx_file import all_nodes, inner_graphs

NARROW, WIDE = TensorProto.BFLOAT16, TensorProto.FLOAT
_TYPES = ("to", "dtype", "output_dtype")
"""Attributes that name the type of what an op makes."""


def has_bfloat16(model: onnx.ModelProto) -> bool:
    """Does a model take, keep or make bfloat16?"""
    tensors = [tensor.data_type for graph in _graphs(model.graph) for tensor in graph.initializer]
    values = [v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)]
    named = [a.i for node in all_nodes(model.graph) for a in node.attribute if a.name in _TYPES]
    inner = [a.t.data_type for node in all_nodes(model.graph) for a in node.attribute if a.HasField("t")]
    return NARROW in (*tensors, *values, *named, *inner)


def widen_model(
    model: onnx.ModelProto, folder: Path = Path(), narrow: int = NARROW, wide: int = WIDE
) -> onnx.ModelProto:
    """The model with the one type in the place of the other, in its inputs and outputs, too.

    Parameters
    ----------
    folder : Path
        Where the model has its external data, if that is not loaded.
    narrow, wide : int
        ONNX's numbers of the types.
    """
    widened = onnx.ModelProto()
    widened.CopyFrom(model)
    for graph in _graphs(widened.graph):
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type == narrow:
                value.type.tensor_type.elem_type = wide
        for tensor in graph.initializer:
            _widen(tensor, folder, narrow, wide)
    for node in all_nodes(widened.graph):
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i == narrow:
                attribute.i = wide
            if attribute.HasField("t"):
                _widen(attribute.t, folder, narrow, wide)
    return widened


def widen_inputs(inputs: Arrays, narrow: int = NARROW, wide: int = WIDE) -> Arrays:
    """The inputs of such a model."""
    old, new = (helper.tensor_dtype_to_np_dtype(kind) for kind in (narrow, wide))
    return {name: a.astype(new) if a.dtype == old else a for name, a in inputs.items()}


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    return [graph, *(inner for node in all_nodes(graph) for inner in inner_graphs(node))]


def _widen(tensor: TensorProto, folder: Path, narrow: int, wide: int) -> None:
    if tensor.data_type == narrow:
        array = numpy_helper.to_array(tensor, str(folder)).astype(helper.tensor_dtype_to_np_dtype(wide))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
