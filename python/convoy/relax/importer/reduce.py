"""Reductions over axes that are known only when a model runs.

The result has the axes of the input, those reduced of length 1.  A sum has n terms along an axis of length
n that is reduced, and one along others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import prod
from typing import Any

from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.corrected import FLOATS
from convoy.relax.importer.idioms.definitions import static_shape
from convoy.relax.importer.late import integers, read_sizes

Converter = Callable[[relax.BlockBuilder, list[Any], dict[str, Any]], Any]


class _Late:
    """One reduction: its input's lengths and, when it runs, those of its result."""

    def __init__(self, bb: relax.BlockBuilder, lengths: list[int], axes: Any, count: int) -> None:
        self.bb = bb
        self.lengths = lengths
        rank = len(lengths)
        axes = bb.emit(relax.op.astype(axes, "int64"))
        behind = relax.op.add(axes, integers([rank]))
        wrapped = relax.op.where(relax.op.less(axes, integers([0])), behind, axes)
        same = relax.op.equal(
            relax.op.expand_dims(integers(range(rank)), 1), relax.op.expand_dims(wrapped, 0)
        )
        self.reduced = bb.emit(relax.op.sum(relax.op.astype(same, "int64"), axis=1))
        """How often each axis is listed."""
        self.expect(self.reduced, count)
        kept = relax.op.where(relax.op.astype(self.reduced, "bool"), integers([1]), integers(lengths))
        self.shape = read_sizes(bb, kept, rank)

    def expect(self, counts: Any, total: int) -> None:
        """End the call where the numbers of axes have another sum: an axis that does not exist has none."""
        found = self.bb.emit(relax.op.sum(counts, keepdims=True))
        self.bb.match_cast(self.bb.emit(relax.op.tensor_to_shape(found)), relax.ShapeType([total]))

    def reduce(self, x: Any, reducer: Any) -> Any:
        lengths = self.lengths

        def compute(x: Any, sizes: Any) -> Any:
            spans = [tirx.if_then_else(m == n, 1, n) for n, m in zip(lengths, sizes, strict=True)]
            inner = [te.reduce_axis((0, span), name=f"k{i}") for i, span in enumerate(spans)]
            return te.compute(
                sizes, lambda *i: reducer(x(*(a + k for a, k in zip(i, inner, strict=True))), axis=inner)
            )

        return self.bb.emit_te(compute, x, self.shape)

    def squeeze(self, x: Any, count: int) -> Any:
        """Without the ``count`` axes that were reduced."""
        self.expect(relax.op.minimum(self.reduced, integers([1])), count)  # none is listed twice
        left = len(self.lengths) - count
        order = relax.op.argsort(self.reduced, dtype="int64")
        kept = relax.op.take(
            integers(self.lengths), relax.op.strided_slice(order, [0], [0], [left]), axis=0
        )
        shape = read_sizes(self.bb, kept, left) if left else relax.ShapeExpr([])
        return relax.op.reshape(x, shape)


def _mean(late: _Late, x: Any) -> Any:
    whole = relax.op.prod(relax.op.shape_to_tensor(late.shape))
    terms = relax.op.divide(integers([prod(late.lengths)]), whole)
    total = late.reduce(x, te.sum)
    return relax.op.divide(total, relax.op.astype(terms, str(x.ty.dtype.dtype)))


def _log_sum_exp(late: _Late, x: Any) -> Any:
    most = late.reduce(x, te.max)
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


def _convert(make: Callable[[_Late, Any], Any]) -> Converter:
    def convert(bb: relax.BlockBuilder, inputs: list[Any], attrs: dict[str, Any]) -> Any:
        x, axes = inputs[0], inputs[1]
        if axes is None or is_constant(axes):
            return None
        lengths, count = static_shape(x), static_shape(axes)
        keepdims = bool(attrs.get("keepdims", 1))
        # Where the axes may be none, TVM's ops on tensors without elements answer wrongly.
        if not lengths or axes.ty.ndim != 1 or count is None or not count[0]:
            return None
        late = _Late(bb, lengths, axes, count[0])
        dtype = x.ty.dtype.dtype
        number = bb.emit(relax.op.astype(x, "int8")) if dtype == "bool" else x
        result = bb.normalize(relax.op.astype(make(late, number), dtype))
        return result if keepdims else late.squeeze(result, count[0])

    return convert


REDUCTIONS: dict[str, Converter] = {op: _convert(make) for op, make in _REDUCTIONS.items()}
