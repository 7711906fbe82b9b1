"""Who is right where two answers in float32 differ: the network in float64.

A network that takes away most of what it added before leaves the rounding of its sums, in any engine.
ONNX Runtime computes in float64 what it has kernels for, and onnx's own evaluator does the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto
from onnx.reference import ReferenceEvaluator

from convoy.bench.accuracy import compare_outputs, reference_outputs
from convoy.bench.inputs import Arrays
from convoy.bench.widened import widen_inputs, widen_model
from convoy.errors import ModelError

MOST_FLOPS = 5 * 10**9
"""The most that a network may have: the evaluator takes about a second a GFLOP."""


@dataclass(frozen=True)
class Verdict:
    """How far both answers are from the one in float64, of its largest value."""

    convoy: float
    reference: float

    def text(self, bound: float) -> str:
        """In words."""
        said = f"in float64 the answer is {self.convoy:.2g} off Convoy's and {self.reference:.2g} off"
        return f"{said} ONNX Runtime's{': Convoy is right' if self.convoy <= bound else ''}"


def judge_in_doubles(
    model: onnx.ModelProto,
    inputs: Arrays,
    outputs: Sequence[NDArray[np.float32]],
    reference: Sequence[NDArray[np.float32]],
    folder: Path = Path(),
) -> dict[str, Verdict]:
    """A verdict for each output; none where neither can run the network in float64.

    Parameters
    ----------
    outputs, reference
        Of Convoy and of ONNX Runtime.
    folder : Path
        Where the model has its external data, if that is not loaded.
    """
    types = TensorProto.FLOAT, TensorProto.DOUBLE
    wide, given = widen_model(model, folder, *types), widen_inputs(inputs, *types)
    exact: list[Any]
    try:
        exact = reference_outputs(wide, given, folder)
    except ModelError:  # it has no convolutions of doubles
        try:
            with np.errstate(all="ignore"):  # its sigmoid overflows on the way, and NumPy would say so
                exact = list(ReferenceEvaluator(wide).run(None, given))
        except Exception:  # it lacks ops, and each says so by an exception of its own
            return {}
    names = [output.name for output in model.graph.output]
    answers = (compare_outputs(names, answer, exact) for answer in (outputs, reference))
    return {
        ours.output: Verdict(ours.relative, other.relative) for ours, other in zip(*answers, strict=True)
    }
