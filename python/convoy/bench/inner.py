"""Inner tensors to compare, where an output is the same everywhere and would hide any error."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from convoy.bench.accuracy import reference_outputs
from convoy.bench.inputs import Arrays, read_model
from convoy.bench.widened import has_bfloat16

COUNT = 3
"""The last tensors that vary are compared: an error before them reaches them."""


def proves_nothing(reference: NDArray[np.generic]) -> bool:
    """Whether it is one value throughout: all zero, saturated, a softmax of one class, or NaN."""
    flat = np.asarray(reference).ravel()
    may_be_nan = np.issubdtype(flat.dtype, np.inexact)  # texts and whole numbers are not
    return flat.size == 0 or bool(
        np.array_equal(flat, np.broadcast_to(flat[0], flat.shape), equal_nan=may_be_nan)
    )


def expose_inner(
    model: onnx.ModelProto, inputs: Arrays, reference: Sequence[NDArray[np.generic]], folder: Path = Path()
) -> onnx.ModelProto:
    """The model itself if every output varies, else with the last inner tensors that do as outputs, too."""
    if has_bfloat16(model) or not any(proves_nothing(array) for array in reference):
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


@dataclass(frozen=True)
class Probe:
    """A model with inner tensors as outputs, too, and what they should be."""

    model: Path
    names: tuple[str, ...]
    """Names of all outputs; empty where no inner tensor varies."""
    reference: tuple[NDArray[np.float32], ...]


@contextmanager
def probe_of(
    path: Path, inputs: Arrays, reference: Sequence[NDArray[np.generic]]
) -> Iterator[Probe | None]:
    """The probe of a model with an output that proves nothing, in a file of its own; None for others.

    Raises
    ------
    ModelError
        If its external data is not there.
    """
    if not any(proves_nothing(array) for array in reference):
        yield None
        return
    model = read_model(path)
    shown = expose_inner(model, inputs, reference)
    if len(shown.graph.output) == len(model.graph.output):
        yield Probe(path, (), ())
        return
    with tempfile.TemporaryDirectory(prefix="convoy-probe-") as folder:
        file = Path(folder, "probe.onnx")
        onnx.save(shown, file)
        names = tuple(output.name for output in shown.graph.output)
        yield Probe(file, names, tuple(reference_outputs(shown, inputs)))
