"""Judging a quantised network: how far an answer is from ONNX Runtime's, in units of a byte.

A unit at a tie of the rounding falls either way, and with it what follows.  So do ONNX Runtime's own two
answers differ: that of its integer kernels, and that of the network as it is written.  How far they are
from one another says how near another right answer can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from convoy.bench.accuracy import cosine_of, same_top
from convoy.onnx_file import all_nodes

Array = NDArray[Any]

UNITS = 2.0
"""The units that an answer may be off by in any case."""
TIMES = 2.0
"""It may be this many times as far as ONNX Runtime's own answers are from one another."""
TIMES_A_LAYER = 4.0
"""The mean error of an inner tensor may be this many times that of what it is computed from."""
COSINE = 0.99
"""The least cosine of the angle to the answer; less where ONNX Runtime's own answers have less, ..."""
LEAST_COSINE = 0.9
"""... but never less than this: that would be another answer."""
STEPS = 255
"""Units between the least and the largest of a byte."""
_QUANTISING = frozenset({"QuantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "ConvInteger"})
_CONTRIBUTED = ("QLinear", "QGemm", "QAttention", "DynamicQuantize", "MatMulIntegerToFloat")
_MOVES = frozenset({"Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class Units:
    """How far one output is from its reference."""

    output: str
    shape: tuple[int, ...]
    unit: float
    """What the last bit of a byte is worth; of an output that is no byte, 1/255 of its range."""
    largest: float
    """The largest error, in units."""
    own: float
    """The same of ONNX Runtime's two answers."""
    share: float
    """How many of the numbers are off by half a unit or more."""
    cosine: float
    own_cosine: float
    """That of ONNX Runtime's two answers."""
    top: float | None
    """For how many of the images the largest number is the same; None where there are no classes."""
    elsewhere: int = 0
    """How many numbers are infinite or NaN on one side only, or not the same: these have no units."""
    own_elsewhere: int = 0
    """The same of ONNX Runtime's two answers."""

    @property
    def allowed(self) -> float:
        """Units that it may be off by."""
        return max(UNITS, TIMES * self.own)

    @property
    def least_cosine(self) -> float:
        """The least that its cosine may be."""
        return max(LEAST_COSINE, min(COSINE, self.own_cosine))

    @property
    def passed(self) -> bool:
        return self.is_as_finite and self.largest <= self.allowed and self.cosine >= self.least_cosine

    @property
    def is_as_finite(self) -> bool:
        """Are infinities and NaN in the same places, or in as few others as ONNX Runtime's own are?"""
        return self.elsewhere <= TIMES * self.own_elsewhere

    @property
    def verdict(self) -> str:
        """``ok``, or what it is past."""
        if self.passed:
            return "ok"
        if not self.is_as_finite:
            return f"{self.elsewhere} not as finite"
        far = self.largest > self.allowed
        return f"past {self.allowed:.3g}" if far else f"cosine below {self.least_cosine:.3g}"

    @property
    def problem(self) -> str:
        """What is wrong, in words; empty where it passes."""
        if self.passed:
            return ""
        if not self.is_as_finite:
            return (
                f"expected infinities and NaN where ONNX Runtime has them, got {self.elsewhere} of "
                f"{prod(self.shape)} numbers otherwise, and {self.own_elsewhere} between its own two "
                "answers; a unit decides whether a byte is 0, as before a Log: --layers compares what is "
                "before it"
            )
        return (
            f"expected at most {self.allowed:.3g} units and a cosine of {self.least_cosine:.3g} or more, "
            f"got {self.largest:.3g} and {self.cosine:.5f}"
        )


def is_quantised(model: onnx.ModelProto) -> bool:
    """Are there numbers in a network that are rounded to bytes as it runs?"""
    ops = {node.op_type for node in all_nodes(model.graph)}
    return any(op in _QUANTISING or op.startswith(_CONTRIBUTED) for op in ops)


def count_units(
    model: onnx.ModelProto,
    outputs: Sequence[Array],
    reference: Sequence[Array],
    other: Sequence[Array] | None = None,
) -> list[Units]:
    """One ``Units`` per output.

    Parameters
    ----------
    reference, other : Sequence[Array]
        ONNX Runtime's answer, and its other one; None where there is no other.
    """
    names = [value.name for value in model.graph.output]
    scales = find_scales(model)
    found = zip(names, outputs, reference, other if other is not None else reference, strict=True)
    return [_units(name, a, b, c, scales.get(name)) for name, a, b, c in found]


def unit_of(reference: Array, scale: float | None) -> float:
    """What a unit of a tensor is worth, which is dequantised by ``scale``, or by none that is known.

    Sums of products of bytes, which are int32, have no scale of a byte either.
    """
    sums = reference.dtype == np.int32
    if reference.dtype.kind in "iub" and not sums:
        return 1.0
    finite = reference[np.isfinite(reference)].astype(np.float64)
    span = float(np.ptp(finite)) if finite.size else 0.0
    return max(1.0, span / STEPS) if sums else scale or span / STEPS or 1.0


def _units(name: str, output: Array, reference: Array, other: Array, scale: float | None) -> Units:
    a, b, c = (array.astype(np.float64) for array in (output, reference, other))
    unit = unit_of(reference, scale)
    (off, elsewhere), (own, own_elsewhere) = (_distance(found, b) for found in (a, c))
    off, own = off / unit, own / unit
    return Units(
        name,
        output.shape,
        unit,
        float(off.max(initial=0)),
        float(own.max(initial=0)),
        float((off >= 0.5).mean()) if off.size else 0.0,
        cosine_of(a, b),
        cosine_of(c, b),
        same_top(a, b),
        elsewhere,
        own_elsewhere,
    )


def _distance(a: Array, b: Array) -> tuple[Array, int]:
    """How far numbers are from others, where both are finite; and how many others are not the same."""
    finite = np.isfinite(a) & np.isfinite(b)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    apart = np.abs(np.where(finite, a, 0.0) - np.where(finite, b, 0.0))
    return apart, int((~same & ~finite).sum())


def find_scales(model: onnx.ModelProto) -> dict[str, float]:
    """The scales of tensors that are dequantised bytes, such bytes moved, or will be quantised."""
    single = (tensor for tensor in model.graph.initializer if list(tensor.dims) in ([], [1]))
    known = {tensor.name: numpy_helper.to_array(tensor) for tensor in single}
    found: dict[str, float] = {}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[1] in known:
            found[node.output[0]] = float(known[node.input[1]].reshape(()))
        elif node.op_type == "QuantizeLinear" and node.input[1] in known:
            found.setdefault(node.input[0], float(known[node.input[1]].reshape(())))
        elif node.op_type in _MOVES and node.input[0] in found:
            found[node.output[0]] = found[node.input[0]]
    return found
