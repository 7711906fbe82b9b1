"""Inner tensors to compare, where an output is the same everywhere and would hide any error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from convoy.bench.accuracy import reference_outputs
from convoy.bench.inputs import Arrays

COUNT = 3
"""The last tensors that vary are compared: an error before them reaches them."""


def proves_nothing(reference: NDArray[np.generic]) -> bool:
    """Is it one value throughout: all zero, saturated, a softmax of one class, or NaN?"""
    flat = np.asarray(reference).ravel()
    return flat.size == 0 or bool(
        np.array_equal(flat, np.broadcast_to(flat[0], flat.shape), equal_nan=True)
    )


def expose_inner(
    model: onnx.ModelProto, inputs: Arrays, reference: Sequence[NDArray[np.generic]], folder: Path = Path()
) -> onnx.ModelProto:
    """The model itself if every output varies, else with the last inner tensors that do as outputs, too."""
    if not any(proves_nothing(array) for array in reference):
        return model
    already = {output.name for output in model.graph.output}
    inner = [name for node in model.graph.node for name in node.output if name and name not in already]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    found = reference_outputs(probe, inputs, folder)[len(already) :]
    vary = [
        name
        for name, array in zip(inner, found, strict=True)
        if isinstance(array, np.ndarray) and array.dtype == np.float32 and not proves_nothing(array)
    ]
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in vary[-COUNT:]
    )
    return shown
