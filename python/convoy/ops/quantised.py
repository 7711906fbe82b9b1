"""Quantising and back."""

from __future__ import annotations

import numpy as np

from convoy.graph.dtypes import ARRAYS, QUANTISED, DType
from convoy.ops.operands import Operands
from convoy.ops.reader import Array, Call, Reader
from convoy.ops.row import OpRow

_WHOLE: frozenset[str] = frozenset({*QUANTISED, "int32"})
_NUMBERS = {1: "scale", 2: "zero point"}


def _check_scales(at: Reader, call: Call) -> str | None:
    """One number, or one for each along the axis."""
    (data,) = at.reads(call)
    length = (data.dims or ())[at.attributes.axis(call)]
    arrays = [at.constant(arg) for arg in call.args[1:3]]
    for what, array in zip(_NUMBERS.values(), arrays, strict=True):
        if array is None or array.size not in (1, length):
            found = "none" if array is None else list(array.shape)
            return f"expected one {what}, or {length} along the axis, got {found}"
    scale = arrays[0]
    if scale is None or not (np.isfinite(scale) & (scale > 0)).all():
        return "expected scales above 0, got another"
    return None


def _check_quantize(at: Reader, call: Call) -> str | None:
    (data,), (made,) = at.reads(call), at.results(call)
    if data.dtype != "float32" or made.dtype not in QUANTISED:
        return f"expected float32 to {' or '.join(QUANTISED)}, got {data.dtype} to {made.dtype}"
    if (reason := _check_scales(at, call)) is not None:
        return reason
    least = np.finfo(np.float32).tiny  # kernels multiply by 1 / scale, which has to be finite
    small = at.constant(call.args[1]) < least
    return f"expected scales from {least:.3g}, got a smaller one" if np.any(small) else None


def _check_dequantize(at: Reader, call: Call) -> str | None:
    (data,), (made,) = at.reads(call), at.results(call)
    if data.dtype not in _WHOLE or made.dtype != "float32":
        return f"expected {', '.join(sorted(_WHOLE))} to float32, got {data.dtype} to {made.dtype}"
    return _check_scales(at, call)


def read_zero(at: Operands, expr: object, dtype: DType) -> Array:
    """A zero point, of the type that the nodes of a graph want."""
    return at.array(expr).astype(ARRAYS[dtype])


def _lower_quantize(at: Operands, call: Call) -> str:
    made: DType = "uint8" if "uint8" in str(call.attrs.out_dtype) else "int8"
    data, scale = at.tensor(call.args[0]), at.array(call.args[1])
    axis = at.axis(at.attributes.axis(call))
    return at.build.quantize(data, scale, read_zero(at, call.args[2], made), axis)


def _lower_dequantize(at: Operands, call: Call) -> str:
    data, scale = at.tensor(call.args[0]), at.array(call.args[1])
    zero = read_zero(at, call.args[2], at.build.tensors[data].dtype)
    return at.build.dequantize(data, scale, zero, at.axis(at.attributes.axis(call)))


def _row(name: str, **given: object) -> OpRow:
    return OpRow(
        name,
        f"qnn.{name}",
        axis_zero="scales",
        open_sizes=True,
        constants=_NUMBERS,
        numbers=frozenset(_NUMBERS),
        dtypes=_WHOLE | {"float32"},
        **given,  # type: ignore[arg-type]
    )


ROWS = (
    _row("quantize", check=_check_quantize, lower=_lower_quantize),
    _row("dequantize", check=_check_dequantize, lower=_lower_dequantize),
)
