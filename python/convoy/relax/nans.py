"""What TVM computes of a NaN: a NaN, as ONNX Runtime does, and where it is quantised the least integer.

TVM takes a bound where comparing with it is false, so that of a NaN relu makes 0, and quantising the
greatest integer.  Of a comparison that is not true it makes the opposite one, which a NaN fails, too, and
what is equal to itself is not compared (0.27).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.relax.dataflow import is_constant, op_name, read_array
from convoy.relax.rewriting import rewriting

ASKED_FOR_NANS = ("float16", "float32", "float64")
"""The types of which TVM tells what is a NaN (0.27): no bfloat16."""


def keep_nans() -> Pass:
    """Pass that writes out bounds of floats, and what quantises them."""
    return rewriting(_Nans, "convoy.keep_nans")


@mutator
class _Nans(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        name = op_name(op)
        if name not in _WRITTEN or not all(_is_known(x.ty) for x in op.args if not _is_number(x)):
            return op
        return _WRITTEN[name](self.builder_, op)


def _is_number(x: Any) -> bool:
    """Is an argument of a call no tensor, but a number?"""
    return not isinstance(x.ty, relax.TensorType)


def _is_known(type_: Any) -> bool:
    """Whether it has as many axes as a function of loops has to have."""
    return isinstance(type_, relax.TensorType) and type_.shape is not None


def _is_float(x: Any) -> bool:
    return "float" in str(x.ty.dtype)


def _is_nan(bb: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    asked = x if str(x.ty.dtype) in ASKED_FOR_NANS else bb.emit(relax.op.astype(x, "float32"))
    return bb.emit(relax.op.isnan(asked))


def _write_clip(bb: relax.BlockBuilder, op: Call) -> Call:
    if not _is_float(op.args[0]):
        return op
    bounds = (0.0, None) if op_name(op) == "nn.relu" else tuple(float(x.value) for x in op.args[1:])
    return bb.call_te(_clip, op.args[0], *bounds, primfunc_name_hint="clip")


def _clip(x: te.Tensor, low: float, high: float | None) -> te.Tensor:
    def at(*i: Any) -> Any:
        value = x(*i)
        for bound, below in ((low, True), (high, False)):
            if bound is not None:
                end = tirx.const(bound, x.dtype)
                value = tirx.Select(value < end if below else value > end, end, value)
        return value

    return te.compute(x.shape, at, name="clip")


def _write_extreme(bb: relax.BlockBuilder, op: Call) -> Call:
    """Where comparing is false the second of two is taken: a NaN that is the second is there already."""
    first = op.args[0]
    return relax.op.where(_is_nan(bb, first), first, bb.emit(op)) if _is_float(first) else op


def _write_sign(bb: relax.BlockBuilder, op: Call) -> Call:
    x = op.args[0]
    return relax.op.where(_is_nan(bb, x), x, bb.emit(op)) if _is_float(x) else op


def _write_comparison(bb: relax.BlockBuilder, op: Call) -> Call:
    """With what is no NaN said beside, of which the opposite is right, too."""
    maybe = [
        x for x in op.args if _is_float(x) and not (is_constant(x) and np.isfinite(read_array(x)).all())
    ]
    if not maybe:
        return op
    first, *others = (_is_nan(bb, x) for x in dict.fromkeys(maybe))
    for other in others:
        first = bb.emit(relax.op.logical_or(first, other))
    if op_name(op) == "not_equal":
        return relax.op.logical_or(first, bb.emit(op))
    return relax.op.logical_and(bb.emit(relax.op.logical_not(first)), bb.emit(op))


def _write_quantize(bb: relax.BlockBuilder, op: Call) -> Call:
    dtype = str(op.attrs.out_dtype)
    if "int" not in dtype:
        return op
    axis = int(op.attrs.axis) % max(op.args[0].ty.ndim, 1)
    return bb.call_te(_quantize, *op.args, axis, dtype, primfunc_name_hint="quantize")


def _quantize(x: te.Tensor, scale: te.Tensor, zero: te.Tensor, axis: int, dtype: str) -> te.Tensor:
    """In float32, whatever x is of, as ONNX Runtime."""
    least, most = (bound(dtype).astype("float32") for bound in (tirx.min_value, tirx.max_value))

    def at(*i: Any) -> Any:
        one, point = (_number_at(numbers, i, axis).astype("float32") for numbers in (scale, zero))
        whole = te.round(x(*i).astype("float32") / one) + point
        return te.min(te.max(whole, least), most).astype(dtype)

    return te.compute(x.shape, at, name="quantized")


def _number_at(numbers: te.Tensor, i: tuple[Any, ...], axis: int) -> Any:
    """The only one, or that of a place along an axis."""
    if all(isinstance(size, tirx.IntImm) and int(size) == 1 for size in numbers.shape):
        return numbers(*[0 for _ in numbers.shape])
    return numbers(i[axis])


_WRITTEN = {
    "nn.relu": _write_clip,
    "clip": _write_clip,
    "maximum": _write_extreme,
    "minimum": _write_extreme,
    "sign": _write_sign,
    **dict.fromkeys(
        ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"), _write_comparison
    ),
    "quantize": _write_quantize,
}
