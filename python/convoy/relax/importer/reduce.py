"""Reductions over axes that are known only when a model runs.

The result has the axes of the input, those reduced of length 1.  A sum has n terms along an axis of length
n that is reduced, and one along others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.axes import LateAxes, check_listed
from convoy.relax.importer.corrected import FLOATS
from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.node_error import NodeError

Converter = Callable[[relax.BlockBuilder, list[Any], dict[str, Any]], Any]


class _Late:
    """One reduction: its input's sizes and, when it runs, those of its result."""

    def __init__(self, bb: Any, sizes: list[Any], axes: Any, *, once: bool, none_means_all: bool) -> None:
        self.bb = bb
        self.sizes = sizes
        self.axes = LateAxes(bb, axes, len(sizes), once=once, none_means_all=none_means_all)
        self.shape = self.axes.reduce(sizes)

    def reduce(self, x: Any, reducer: Any) -> Any:
        def compute(x: Any, sizes: Any) -> Any:
            spans = [tirx.if_then_else(m == n, 1, n) for n, m in zip(x.shape, sizes, strict=True)]
            inner = [te.reduce_axis((0, span), name=f"k{i}") for i, span in enumerate(spans)]
            return te.compute(
                sizes, lambda *i: reducer(x(*(a + k for a, k in zip(i, inner, strict=True))), axis=inner)
            )

        return self.bb.emit_te(compute, x, self.shape, primfunc_name_hint="reduce_late")


def _mean(late: _Late, x: Any) -> Any:
    sizes, left = (
        relax.op.shape_to_tensor(relax.ShapeExpr(list(s))) for s in (late.sizes, late.shape.values)
    )
    ones = relax.op.ones_like(left)
    reduced = relax.op.where(relax.op.equal(sizes, left), ones, sizes)
    terms = late.bb.emit(relax.op.prod(reduced, keepdims=True))
    return _share(late.bb, late.reduce(_wide(late.bb, x), te.sum), terms, str(x.ty.dtype))


def _wide(bb: Any, x: Any) -> Any:
    """Whole numbers as int64: their mean fits their type, but their sum may not."""
    narrow = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
    return bb.emit(relax.op.astype(x, "int64")) if str(x.ty.dtype) in narrow else x


def _share(bb: Any, total: Any, terms: Any, dtype: str) -> Any:
    """A sum by how many terms it has, as ``dtype``; of no whole numbers the mean is 0."""
    own = str(total.ty.dtype)
    if own not in FLOATS:
        terms = bb.emit(relax.op.maximum(terms, relax.const(1, "int64")))
    share = relax.op.divide(total, bb.emit(relax.op.astype(terms, own)))
    return share if own == dtype else relax.op.astype(bb.emit(share), dtype)


def _mean_of_integers(bb: Any, x: Any, axes: list[int], keepdims: bool) -> Any:
    """Along axes that are known: TVM's has another type, and of no numbers it ended the process (0.27).

    None where the sizes are unknown.
    """
    sizes = bb.algebra.sizes(x)
    if sizes is None:
        return None
    along = [sizes[axis] for axis in axes] if axes else sizes
    terms = bb.emit(relax.op.prod(relax.op.shape_to_tensor(relax.ShapeExpr(along or [1]))))
    wide, dtype = _wide(bb, x), str(x.ty.dtype)
    total = bb.emit(relax.op.sum(wide, axes or None, keepdims))
    total = bb.emit(relax.op.astype(total, str(wide.ty.dtype)))
    return _share(bb, total, terms, dtype)


def _within_numbers(x: Any) -> Any:
    """Infinities as the last finite numbers: less one of themselves they would be NaN."""
    last = np.finfo(str(x.ty.dtype)).max
    low, high = (constant(np.asarray(n, str(x.ty.dtype))) for n in (-last, last))
    return relax.op.minimum(relax.op.maximum(x, low), high)


def _log_sum_exp(late: _Late, x: Any) -> Any:
    most = late.bb.emit(_within_numbers(late.reduce(x, te.max)))
    powers = late.bb.emit(relax.op.exp(relax.op.subtract(x, most)))
    return relax.op.add(relax.op.log(late.reduce(powers, te.sum)), most)


def _product(late: _Late, x: Any) -> Any:
    times = te.comm_reducer(lambda a, b: a * b, lambda dtype: tirx.const(1, dtype), name="product")
    return late.reduce(x, times)


def _extreme(of: Any, beyond: Any, infinity: float) -> Callable[[_Late, Any], Any]:
    """The largest or smallest number, from infinity on: TVM's own begins with the last finite one."""

    def first(dtype: Any) -> Any:
        return tirx.const(infinity, dtype) if str(dtype) in FLOATS else beyond(dtype)

    reducer = te.comm_reducer(lambda a, b: of(a, b), first, name="extreme")
    return lambda late, x: late.reduce(x, reducer)


def _summed(before: Any = None, after: Any = None) -> Callable[[_Late, Any], Any]:
    def make(late: _Late, x: Any) -> Any:
        total = late.reduce(x if before is None else late.bb.emit(before(x)), te.sum)
        return total if after is None else after(total)

    return make


_REDUCTIONS: dict[str, Callable[[_Late, Any], Any]] = {
    "ReduceSum": _summed(),
    "ReduceMean": _mean,
    "ReduceMax": _extreme(tirx.max, tirx.min_value, -math.inf),
    "ReduceMin": _extreme(tirx.min, tirx.max_value, math.inf),
    "ReduceProd": _product,
    "ReduceL1": _summed(relax.op.abs),
    "ReduceL2": _summed(relax.op.square, relax.op.sqrt),
    "ReduceSumSquare": _summed(relax.op.square),
    "ReduceLogSum": _summed(None, relax.op.log),
    "ReduceLogSumExp": _log_sum_exp,
}


_OF_BOOLS = {"ReduceMax": relax.op.max, "ReduceMin": relax.op.min}


def _reduce_bools(bb: relax.BlockBuilder, op: str, x: Any, axes: Any, attrs: dict[str, Any]) -> Any:
    """Any or all of booleans, of which TVM has no largest; None for others."""
    listed = [] if axes is None else [int(a) for a in axes.value.numpy()]
    if (
        op not in _OF_BOOLS
        or str(x.ty.dtype) != "bool"
        or not (listed or not attrs.get("noop_with_empty_axes", 0))
    ):
        return None
    numbers = bb.emit(relax.op.astype(x, "int8"))
    found = bb.emit(_OF_BOOLS[op](numbers, listed or None, bool(attrs.get("keepdims", 1))))
    return _as_truth(found)


def _as_truth(extreme: Any) -> Any:
    """The extreme of no numbers is that of the type: none of them is true, and all are."""
    return relax.op.greater(extreme, relax.const(0, "int8"))


def _log_sum_exp_along(bb: Any, x: Any, axes: list[int], keepdims: bool) -> Any:
    """Along axes that are known: all, where there are none."""
    most = bb.emit(_within_numbers(bb.emit(relax.op.max(x, axes or None, True))))
    powers = bb.emit(relax.op.exp(relax.op.subtract(x, most)))
    total = relax.op.log(bb.emit(relax.op.sum(powers, axes or None, True)))
    found = bb.emit(relax.op.add(total, most))
    return found if keepdims else relax.op.squeeze(found, axes or list(range(x.ty.ndim)))


def _convert(op: str, make: Callable[[_Late, Any], Any]) -> Converter:
    def convert(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        x, axes = inputs[0], inputs[1]
        if axes is not None and axes.ty.ndim == 0:
            raise NodeError("expected a vector of axes, got a number alone", "give it as a vector of one")
        if axes is None or is_constant(axes):
            check_listed([] if axes is None else axes.value.numpy().tolist(), x.ty.ndim)
            given = [int(a) for a in (attrs.get("axes", []) if axes is None else axes.value.numpy())]
            along = given or not attrs.get("noop_with_empty_axes", 0)
            if op == "ReduceLogSumExp" and along and str(x.ty.dtype) in ("float32", "float64"):
                return _log_sum_exp_along(bb, x, given, bool(attrs.get("keepdims", 1)))
            if op == "ReduceMean" and along and "int" in str(x.ty.dtype):
                return _mean_of_integers(bb, x, given, bool(attrs.get("keepdims", 1)))
            return _reduce_bools(bb, op, x, axes, attrs)
        sizes, count = bb.algebra.sizes(x), (bb.algebra.sizes(axes) or [None])[0]
        if not sizes or count is None:
            return None
        if isinstance(count, int) and not count:
            inputs[1] = None
            return None
        keepdims, all_ = bool(attrs.get("keepdims", 1)), not attrs.get("noop_with_empty_axes", 0)
        if not keepdims and not isinstance(count, int):
            raise NodeError(
                "expected a known number of axes, which the result has less, got an open one",
                "keep them as axes of size 1",
            )
        late = _Late(bb, sizes, axes, once=not keepdims, none_means_all=all_)
        dtype = x.ty.dtype.dtype
        number = bb.emit(relax.op.astype(x, "int8")) if dtype == "bool" else x
        made = make(late, number)
        result = bb.normalize(_as_truth(made) if dtype == "bool" else relax.op.astype(made, dtype))
        if keepdims:
            return result
        return relax.op.reshape(result, late.axes.leave_out(sizes, count))

    return convert


REDUCTIONS: dict[str, Converter] = {op: _convert(op, make) for op, make in _REDUCTIONS.items()}
