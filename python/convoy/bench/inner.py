"""Inner tensors to compare, where an output would hide any error."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from convoy.bench.accuracy import BOUND, reference_outputs
from convoy.bench.inputs import Arrays, other_inputs, read_model
from convoy.bench.widened import has_bfloat16
from convoy.errors import ModelError

COUNT = 3
"""The last tensors that vary are compared: an error before them reaches them."""
ONE_VALUE = "one value throughout"
DEAF = "hardly changes with the inputs"
"""Why that an output agrees proves nothing."""


def proves_nothing(reference: NDArray[np.generic]) -> bool:
    """Whether it is one value throughout: all zero, saturated, a softmax of one class, or NaN."""
    flat = np.asarray(reference).ravel()
    may_be_nan = np.issubdtype(flat.dtype, np.inexact)  # texts and whole numbers are not
    return flat.size == 0 or bool(
        np.array_equal(flat, np.broadcast_to(flat[0], flat.shape), equal_nan=may_be_nan)
    )


def blind_outputs(
    model: onnx.ModelProto, inputs: Arrays, reference: Sequence[NDArray[np.generic]], folder: Path = Path()
) -> dict[str, str]:
    """The outputs that hide errors, each with the reason.

    One is the same everywhere, or hardly changes when the inputs do: a head whose weights are zero gives
    its bias, whatever was computed before it. An output that no data reach is right where it agrees.
    """
    names = [output.name for output in model.graph.output]
    blind = {n: ONE_VALUE for n, array in zip(names, reference, strict=True) if proves_nothing(array)}
    fed = _fed_names(model.graph)
    if all(name in blind or name not in fed for name in names):
        return blind
    try:
        other = reference_outputs(model, other_inputs(inputs), folder)
    except ModelError:  # numbers that the model cannot stand, such as sizes
        return blind
    pairs = zip(names, reference, other, strict=True)
    deaf = {name: DEAF for name, a, b in pairs if name in fed and not hears(a, b)}
    return {**deaf, **blind}


def hears(reference: NDArray[np.generic], other: NDArray[np.generic]) -> bool:
    """Whether a tensor changes with the inputs by more than an answer may be off."""
    a, b = np.asarray(reference), np.asarray(other)
    if a.shape != b.shape or a.dtype.kind not in "fV":
        return not np.array_equal(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):  # infinities
        moved = np.abs(a - b)[np.isfinite(a) & np.isfinite(b)]
    largest = np.abs(a[np.isfinite(a)]).max(initial=0.0)
    return bool(moved.max(initial=0.0) > BOUND * largest) or not np.array_equal(
        np.isfinite(a), np.isfinite(b)
    )


def _fed_names(graph: onnx.GraphProto) -> set[str]:
    """The tensors that data reach, beside their shapes."""
    weights = {tensor.name for tensor in graph.initializer}
    fed = {value.name for value in graph.input} - weights
    for node in graph.node:
        inner = any(attribute.HasField("g") for attribute in node.attribute)  # may read what is around it
        if inner or (node.op_type not in ("Shape", "Size") and not fed.isdisjoint(node.input)):
            fed.update(node.output)
    return fed


def expose_inner(
    model: onnx.ModelProto, inputs: Arrays, blind: Collection[str], folder: Path = Path()
) -> onnx.ModelProto:
    """The model itself if no output hides errors, else one that gives the last tensors that do not, too."""
    if has_bfloat16(model) or not blind:
        return model
    already = {output.name for output in model.graph.output}
    fed = _fed_names(model.graph)
    inner = [
        name for node in model.graph.node for name in node.output if name in fed and name not in already
    ]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    found = reference_outputs(probe, inputs, folder)[len(already) :]
    vary = [
        name
        for name, array in zip(inner, found, strict=True)
        if isinstance(array, np.ndarray) and array.dtype == np.float32 and not proves_nothing(array)
    ]
    vary = _hearing(probe, inputs, dict(zip(inner, found, strict=True)), vary, folder)
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    shown.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in vary[-COUNT:]
    )
    return shown


def _hearing(
    probe: onnx.ModelProto,
    inputs: Arrays,
    found: Mapping[str, NDArray[np.generic]],
    names: Sequence[str],
    folder: Path,
) -> list[str]:
    """Those of the tensors that change with the inputs; all where the model cannot stand other inputs."""
    try:
        outputs = reference_outputs(probe, other_inputs(inputs), folder)
    except ModelError:
        return list(names)
    other = dict(zip((output.name for output in probe.graph.output), outputs, strict=True))
    return [name for name in names if hears(found[name], other[name])]


@dataclass(frozen=True)
class Probe:
    """A model with inner tensors as outputs, too, and what they should be."""

    model: Path
    names: tuple[str, ...]
    """Names of all outputs; empty where no inner tensor varies."""
    reference: tuple[NDArray[np.float32], ...]


@contextmanager
def probe_of(path: Path, inputs: Arrays, blind: Collection[str]) -> Iterator[Probe | None]:
    """The probe of a model with outputs that prove nothing, in a file of its own; None for others.

    Raises
    ------
    ModelError
        If its external data is not there.
    """
    if not blind:
        yield None
        return
    model = read_model(path)
    shown = expose_inner(model, inputs, blind)
    if len(shown.graph.output) == len(model.graph.output):
        yield Probe(path, (), ())
        return
    with tempfile.TemporaryDirectory(prefix="convoy-probe-") as folder:
        file = Path(folder, "probe.onnx")
        onnx.save(shown, file)
        names = tuple(output.name for output in shown.graph.output)
        yield Probe(file, names, tuple(reference_outputs(shown, inputs)))
