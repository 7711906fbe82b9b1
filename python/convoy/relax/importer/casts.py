"""Casts of floats to whole numbers of 32 and 64 bits: of what is none, or does not fit, as ONNX Runtime's.

That is the least number, as the processor's own instruction gives (x86); TVM's frontend makes 0 of what is
infinite, and cuts bits off (0.27).  Of uint32 what ONNX Runtime gives depends on where in a tensor it lies.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper
from tvm import relax

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.float8 import cast_float8

FLOATS = {"bfloat16": "float32", "float16": "float32", "float32": "float32", "float64": "float64"}
"""Types that are cast, and those in which all bounds are numbers."""


def convert_cast(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """From floats to whole numbers, and from or to a float of 8 bits; None for other types."""
    return _cast(bb, inputs[0], str(helper.tensor_dtype_to_np_dtype(attrs["to"])), attrs)


def convert_cast_like(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """The same to the type of another tensor."""
    return _cast(bb, inputs[0], _dtype(inputs[1]), attrs)


def _dtype(x: Any) -> str:
    return str(x.ty.dtype) if isinstance(x, relax.Expr) and isinstance(x.ty, relax.TensorType) else ""


def _cast(bb: relax.BlockBuilder, x: Any, to: str, attrs: dict[str, Any]) -> Any:
    source = _dtype(x)
    if source not in FLOATS or to not in ("int32", "int64", "uint64") or is_constant(x):
        return cast_float8(bb, x, source, to, attrs)
    if FLOATS[source] != source:
        x = bb.emit(relax.op.astype(x, FLOATS[source]))
    return _cut(bb, x, to) if to != "uint64" else _cut_unsigned(bb, x)


def _cut(bb: relax.BlockBuilder, x: Any, to: str) -> Any:
    """Cut off to a signed number; the least of these where it does not fit."""
    least, dtype = np.iinfo(to).min, str(x.ty.dtype)
    if to == "int32" and dtype == "float64":  # holds numbers between the least and the next below it
        above = bb.emit(relax.op.greater(x, relax.const(float(least) - 1, dtype)))
    else:
        above = bb.emit(relax.op.greater_equal(x, relax.const(float(least), dtype)))
    below = bb.emit(relax.op.less(x, relax.const(-float(least), dtype)))
    fits = bb.emit(relax.op.logical_and(above, below))
    return relax.op.where(fits, bb.emit(relax.op.astype(x, to)), relax.const(least, to))


def _cut_unsigned(bb: relax.BlockBuilder, x: Any) -> Any:
    """The bits of a signed number; from 2^63 on those of what is beyond, and the bit of it."""
    half = relax.const(2.0**63, str(x.ty.dtype))
    below = bb.emit(relax.op.astype(bb.emit(_cut(bb, x, "int64")), "uint64"))
    beyond = bb.emit(_cut(bb, bb.emit(relax.op.subtract(x, half)), "int64"))
    beyond = bb.emit(relax.op.astype(beyond, "uint64"))
    bit = relax.const(np.array(2**63, "uint64"))
    beyond = bb.emit(relax.op.bitwise_xor(beyond, bit))
    return relax.op.where(bb.emit(relax.op.greater_equal(x, half)), beyond, below)
