"""Largest and smallest elements that TVM computes: of nothing but infinities it is one.

TVM begins with the last finite number, so that of -inf alone, or of nothing, the largest is -3.4e38 (0.27).
So do its pools.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx, topi
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.relax.dataflow import op_name
from convoy.relax.nans import ASKED_FOR_NANS
from convoy.relax.rewriting import rewriting

_POOLS = ("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d")
_ALONG = "DHW"
"""The axes of a layout along which windows lie."""


def reduce_extremes() -> Pass:
    """Pass that writes out reductions and pools of floats to their largest or smallest element."""
    return rewriting(_Extremes, "convoy.reduce_extremes")


@mutator
class _Extremes(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        name = op_name(op)
        if name not in (*_EXTREMES, *_POOLS) or not _is_known(op.args[0].ty) or not _is_known(op.ty):
            return op
        if name in _POOLS:
            return self._pool(op, name.removeprefix("nn."))
        axes = op.attrs.axis
        rank = op.args[0].ty.ndim
        axes = range(rank) if axes is None else [int(axis) % rank for axis in axes]
        return self.builder_.call_te(
            _reduce, op.args[0], list(axes), bool(op.attrs.keepdims), name, primfunc_name_hint=name
        )

    def _pool(self, op: Call, name: str) -> Call:
        layout, n = str(op.attrs.layout), len(op.attrs.pool_size)
        if not layout.isalpha() or layout != str(op.attrs.out_layout) or not layout.isupper():
            return op  # blocks of channels, which nobody but TVM's own passes makes
        windows = _Windows(layout, op.attrs, n)
        return self.builder_.call_te(
            windows.largest, op.args[0], list(op.ty.shape.values), primfunc_name_hint=name
        )


def _is_known(type_: Any) -> bool:
    """Whether it is of floats, in as many axes as a function of loops has to have."""
    return isinstance(type_, relax.TensorType) and type_.shape is not None and "float" in str(type_.dtype)


def _reducer(of: Callable[[Any, Any], Any], first: float) -> Any:
    return te.comm_reducer(of, lambda dtype: tirx.const(first, dtype), name="extreme")


def _keep_nan(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda a, b: tirx.Select(_is_nan(a), a, tirx.Select(_is_nan(b), b, of(a, b)))


def _is_nan(x: Any) -> Any:
    return tirx.isnan(x if str(x.ty.dtype) in ASKED_FOR_NANS else x.astype("float32"))


_EXTREMES = {"max": (_keep_nan(tirx.max), -math.inf), "min": (_keep_nan(tirx.min), math.inf)}
"""They keep a NaN wherever it is; TVM's own do not where a number is compared with it last."""


def _reduce(x: te.Tensor, axes: list[int], keepdims: bool, name: str) -> te.Tensor:
    reducer = _reducer(*_EXTREMES[name])
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


class _Windows:
    """A pool's windows, each by the axis it lies along."""

    def __init__(self, layout: str, attrs: Any, n: int) -> None:
        axes = [layout.index(letter) for letter in _ALONG if letter in layout]
        self.kernel, self.stride, self.dilation, self.before, self.after = (
            dict(zip(axes, map(int, numbers), strict=True))
            for numbers in (
                attrs.pool_size,
                attrs.strides,
                attrs.dilation,
                list(attrs.padding)[:n],
                list(attrs.padding)[n:],
            )
        )
        self.ceil = bool(attrs.ceil_mode)

    def largest(self, x: te.Tensor, made: Sequence[Any]) -> te.Tensor:
        """The largest element of each window, of what is beyond the map -inf."""
        overhang = {axis: (stride - 1) * self.ceil for axis, stride in self.stride.items()}
        before = [self.before.get(axis, 0) for axis in range(len(x.shape))]
        after = [self.after.get(axis, 0) + overhang.get(axis, 0) for axis in range(len(x.shape))]
        lowest = tirx.const(-math.inf, str(x.dtype))
        padded = topi.nn.pad(x, before, after, lowest, "pad") if any((*before, *after)) else x
        taps = {axis: te.reduce_axis((0, size), name=f"k{axis}") for axis, size in self.kernel.items()}

        def at(*i: Any) -> Any:
            places = [
                place * self.stride[axis] + taps[axis] * self.dilation[axis] if axis in taps else place
                for axis, place in enumerate(i)
            ]
            return reducer(padded(*places), axis=list(taps.values()))

        reducer = _reducer(*_EXTREMES["max"])
        return te.compute(list(made), at, name="largest")
