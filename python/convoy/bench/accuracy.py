"""Comparing answers: what Convoy computes against ONNX Runtime on the unfolded network.

The figure is the largest absolute error over the largest absolute value.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median_low

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from convoy.bench.inputs import Arrays
from convoy.bench.integers import write_out_products
from convoy.bench.job import Precision
from convoy.bench.ordered import order_tops
from convoy.bench.widened import has_bfloat16, widen_inputs, widen_model
from convoy.errors import ModelError

BOUND = 1e-4
"""The relative error Convoy promises to stay within, in float32."""
LEAST_BOUND: Mapping[Precision, float] = {"float32": BOUND, "bf16": 2e-2, "int8": 2e-2}
"""In other precisions answers differ by what rounding makes of them: so much is right, ..."""
LEAST_COSINE = 0.999
"""The least cosine of an answer in bf16 and the float32 one: what rounding to 8 bits leaves of it."""
LAST_PLACE: Mapping[str, float] = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""One unit in the last place of a type, of the number: an answer that is rounded may be off by it."""
OUTLIER = 4.0
"""... and so many times what most of the engines differ by."""


def bound_of(errors: Sequence[float], precision: Precision) -> float:
    """The largest error of a right answer, from those of all engines: an outlier among them is wrong."""
    least = LEAST_BOUND[precision]
    if precision == "float32" or not errors:
        return least
    return max(least, OUTLIER * median_low(errors))


@dataclass(frozen=True)
class Difference:
    """How far one output is from its reference."""

    output: str
    shape: tuple[int, ...]
    largest: float
    """Largest absolute value of the reference."""
    absolute: float
    """Largest absolute error; infinite where only one side is finite."""
    spread: float
    """Standard deviation of the reference: zero means that the comparison proves nothing."""
    mean: float = 0.0
    """Mean absolute error."""
    cosine: float = 1.0
    """The cosine of both, where they are finite."""
    last_place: float = 0.0
    """One unit in the last place of an output in half precision, of its largest value."""
    elsewhere: int = 0
    """How many numbers are infinite or NaN on one side only, or not the same on both."""

    def passes(self, bound: float, precision: Precision = "float32") -> bool:
        """Is it within the bound, or in another precision of the right direction?"""
        if precision == "float32":
            return self.relative <= max(bound, self.last_place)
        return np.isfinite(self.absolute) and self.cosine >= LEAST_COSINE

    def problem(self, bound: float, precision: Precision = "float32") -> str:
        """What is wrong, in words; empty where it passes."""
        if self.passes(bound, precision):
            return ""
        if self.elsewhere:
            return (
                f"expected infinities and NaN where ONNX Runtime has them, got {self.elsewhere} of "
                f"{prod(self.shape)} numbers otherwise"
            )
        if precision == "float32":
            least = max(bound, self.last_place)
            return f"expected an error of {least:g} of its largest output, got {self.relative:.2g}"
        return (
            f"expected a cosine of {LEAST_COSINE} or more, got {self.cosine:.5f}, and the largest error "
            f"{self.relative:.2g} of the largest output"
        )

    @property
    def relative(self) -> float:
        if self.absolute == 0.0:
            return 0.0
        return self.absolute / self.largest if self.largest else float("inf")


def reference_outputs(
    model: onnx.ModelProto, inputs: Arrays, folder: Path = Path(), *, optimised: bool = False
) -> list[NDArray[np.float32]]:
    """ONNX Runtime's answer with its own optimisations off: the network as it was written.

    One in bfloat16 it runs in float32; the answer is rounded.  Products of bytes are written out in floats
    (``integers.py``), and what may come in any order comes in order (``ordered.py``).

    Parameters
    ----------
    folder : Path
        Where the model has its external data, if that is not loaded.
    optimised : bool
        With them on, which give a quantised network kernels of integers.

    Raises
    ------
    ModelError
        If ONNX Runtime is not installed, or refuses the model.
    """
    try:
        import onnxruntime as ort
    except ImportError:
        raise ModelError(
            "check",
            "onnxruntime",
            "expected the package, got an import error",
            "pip install 'convoy-tvm[check]'",
        ) from None
    kinds = [output.type.tensor_type.elem_type for output in model.graph.output]
    if has_bfloat16(model):
        model, inputs = widen_model(model, folder), widen_inputs(inputs)
    model = order_tops(model)
    options = ort.SessionOptions()
    if not optimised:
        model = write_out_products(model)
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4  # what it logs it raises, too, and shows names as they are
    # bytes: a folder's name need not be UTF-8
    key = "session.model_external_initializers_file_folder_path"
    options.add_session_config_entry(key, os.fsencode(folder))
    try:
        session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
        outputs: list[NDArray[np.float32]] = session.run(None, inputs)
    except Exception as error:
        # ONNX Runtime raises one class per status code, none of them public
        raise ModelError(
            "check",
            model.graph.name or "model",
            f"expected a model ONNX Runtime runs, got: {' '.join(str(error).split())}",
            "repair the model, e.g. with onnx.checker.check_model",
        ) from error
    bfloat16 = helper.tensor_dtype_to_np_dtype(TensorProto.BFLOAT16)
    return [
        array.astype(bfloat16) if kind == TensorProto.BFLOAT16 else array
        for kind, array in zip(kinds, outputs, strict=True)
    ]


def compare_outputs(
    names: Sequence[str], outputs: Sequence[NDArray[np.float32]], reference: Sequence[NDArray[np.float32]]
) -> list[Difference]:
    """One ``Difference`` per output.

    NaN and infinity have to be in the same places on both sides.

    Raises
    ------
    ModelError
        If the numbers or the shapes of the outputs differ.
    """
    if len(outputs) != len(reference):
        raise ModelError(
            "check",
            "outputs",
            f"expected {len(reference)}, got {len(outputs)}",
            "report this as a bug of Convoy",
        )
    return [_difference(*triple) for triple in zip(names, outputs, reference, strict=True)]


def _difference(name: str, output: NDArray[np.float32], reference: NDArray[np.float32]) -> Difference:
    if output.shape != reference.shape:
        raise ModelError(
            "check",
            f"output {name}",
            f"expected shape {reference.shape}, got {output.shape}",
            "report this as a bug of Convoy",
        )
    ours, theirs = output.astype(np.float64), reference.astype(np.float64)
    finite = np.isfinite(theirs)
    # a NaN at the same place on both sides is agreement
    same = (ours == theirs) | (np.isnan(ours) & np.isnan(theirs))
    elsewhere = int((~same & ~(finite & np.isfinite(ours))).sum())
    if not finite.any():
        absolute = np.inf if elsewhere else 0.0
        return Difference(name, output.shape, 0.0, absolute, 0.0, elsewhere=elsewhere)
    error = np.abs(ours[finite] - theirs[finite])
    absolute = np.inf if elsewhere else float(error.max())
    values = theirs[finite]
    largest, spread, mean = np.abs(values).max(), values.std(), error.mean()
    cosine = cosine_of(ours[finite], values)
    place = LAST_PLACE.get(reference.dtype.name, 0.0)
    return Difference(
        name, output.shape, float(largest), absolute, float(spread), float(mean), cosine, place, elsewhere
    )


def cosine_of(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the cosine of the angle between two arrays, where both are finite; zeros have 1."""
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float((a * b).sum()) / lengths if lengths else float(np.array_equal(a, b))


def same_top(output: NDArray[np.float64], reference: NDArray[np.float64]) -> float | None:
    """For how many of the images the largest number is the same; None where there are no classes."""
    b = reference
    ours, theirs = (array.reshape(len(array) if array.ndim > 1 else 1, -1) for array in (output, b))
    classes = theirs.size > len(theirs) > 0 and b.ndim in (2, 4) and theirs.shape[1] == b.shape[1]
    return float((ours.argmax(1) == theirs.argmax(1)).mean()) if classes else None
