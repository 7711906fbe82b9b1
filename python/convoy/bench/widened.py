"""A model in bfloat16, in float32.

ONNX Runtime has few kernels for bfloat16, and Convoy computes such a model in float32.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

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


def widen_model(model: onnx.ModelProto, folder: Path = Path()) -> onnx.ModelProto:
    """The model with float32 in the place of each bfloat16, its inputs and outputs, too.

    Parameters
    ----------
    folder : Path
        Where the model has its external data, if that is not loaded.
    """
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    for graph in _graphs(wide.graph):
        del graph.value_info[:]
        for value in (*graph.input, *graph.output):
            if value.type.tensor_type.elem_type == NARROW:
                value.type.tensor_type.elem_type = WIDE
        for tensor in graph.initializer:
            _widen(tensor, folder)
    for node in all_nodes(wide.graph):
        for attribute in node.attribute:
            if attribute.name in _TYPES and attribute.i == NARROW:
                attribute.i = WIDE
            if attribute.HasField("t"):
                _widen(attribute.t, folder)
    return wide


def widen_inputs(inputs: Arrays) -> Arrays:
    """The inputs of such a model, those in bfloat16 as float32."""
    narrow = {name for name, array in inputs.items() if array.dtype.name == "bfloat16"}
    return {name: a.astype(np.float32) if name in narrow else a for name, a in inputs.items()}


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    return [graph, *(inner for node in all_nodes(graph) for inner in inner_graphs(node))]


def _widen(tensor: TensorProto, folder: Path) -> None:
    if tensor.data_type == NARROW:
        array = numpy_helper.to_array(tensor, str(folder)).astype(np.float32)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
