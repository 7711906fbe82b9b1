"""Largest and smallest elements that TVM computes: of nothing but infinities it is one.

TVM begins with the last finite number, so that of -inf alone, or of nothing, the largest is -3.4e38 (0.27).
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.relax.dataflow import op_name
from convoy.relax.rewriting import rewriting

_EXTREMES = ("max", "min")


def reduce_extremes() -> Pass:
    """Pass that writes out reductions of floats to their largest or smallest element."""
    return rewriting(_Extremes, "convoy.reduce_extremes")


@mutator
class _Extremes(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        name = op_name(op)
        if name not in _EXTREMES or not _is_known(op.args[0].ty):
            return op
        axes = op.attrs.axis
        rank = op.args[0].ty.ndim
        axes = range(rank) if axes is None else [int(axis) % rank for axis in axes]
        return self.builder_.call_te(
            _reduce, op.args[0], list(axes), bool(op.attrs.keepdims), name, primfunc_name_hint=name
        )


def _is_known(type_: Any) -> bool:
    """Whether it is of floats, in as many axes as a function of loops has to have."""
    return isinstance(type_, relax.TensorType) and type_.shape is not None and "float" in str(type_.dtype)


def _reduce(x: te.Tensor, axes: list[int], keepdims: bool, name: str) -> te.Tensor:
    of, first = (tirx.max, -math.inf) if name == "max" else (tirx.min, math.inf)
    reducer = te.comm_reducer(lambda a, b: of(a, b), lambda dtype: tirx.const(first, dtype), name=name)
    taps = {axis: te.reduce_axis((0, x.shape[axis]), name=f"k{axis}") for axis in axes}
    shape = [1 if axis in taps else size for axis, size in enumerate(x.shape)]

    def at(*i: Any) -> Any:
        kept = iter(i)
        if keepdims:
            places = [taps.get(axis, place) for axis, place in enumerate(i)]
        else:
            places = [taps[axis] if axis in taps else next(kept) for axis in range(len(x.shape))]
        return reducer(x(*places), axis=list(taps.values()))

    made = shape if keepdims else [size for axis, size in enumerate(x.shape) if axis not in taps]
    return te.compute(made, at, name=name)
