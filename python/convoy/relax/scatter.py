"""Elements that are written where indices say, of fewer rows or columns than the data have.

TVM counts the elements of the data as if they had the indices' other axes (0.27): along these what is
written lies elsewhere, and nothing says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

from convoy.relax.dataflow import number, op_name
from convoy.relax.rewriting import length, rewriting

_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": tirx.min,
    "max": tirx.max,
}


def scatter_by_coordinates() -> Pass:
    """Pass that writes out scatters of elements whose indices have other sizes than the data."""
    return rewriting(_Scatters, "convoy.scatter_by_coordinates")


@mutator
class _Scatters(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        name = op_name(op)
        if name not in ("scatter_elements", "scatter_nd") or any(t.ty.shape is None for t in op.args):
            return op
        data, indices = (list(t.ty.shape.values) for t in op.args[:2])
        if any(number(size) == 0 for size in indices):
            return op.args[0]
        if name == "scatter_nd":
            return op
        axis, known = int(op.attrs.axis) % len(data), Analyzer()
        along = zip(data, indices, strict=True)
        if all(known.can_prove_equal(a, b) for i, (a, b) in enumerate(along) if i != axis):
            return op
        reduction = str(op.attrs.reduction)
        return self.builder_.call_te(
            _scatter, *op.args, axis, reduction, primfunc_name_hint="scatter_elements"
        )


def _strides(shape: Sequence[Any]) -> list[Any]:
    strides: list[Any] = [tirx.IntImm("int64", 1)]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return strides


def _scatter(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str
) -> te.Tensor:
    """``data`` with each update at the index beside it along ``axis``, and at its own place along others.

    Threads share the first of the others, along which no two write the same element.  A loop for each axis:
    to divide by open sizes takes LLVM minutes.
    """
    others = [i for i in range(len(data.shape)) if i != axis]
    steps = into, of, by = [_strides(x.shape) for x in (data, indices, updates)]
    size, join = data.shape[axis].astype("int64"), _JOIN[reduction]

    def write(old: Any, places: Any, new: Any, out: Any) -> None:
        with T.parallel(0, length(data)) as element:
            out[element] = old[element]
        starts = [tirx.IntImm("int64", 0)] * 3
        with ExitStack() as loops:
            for i in others:
                loop = T.parallel if i == others[0] else T.serial
                place = loops.enter_context(loop(0, indices.shape[i]))
                starts = [start + place * step[i] for start, step in zip(starts, steps, strict=True)]
            k = loops.enter_context(T.serial(0, indices.shape[axis]))
            index = tirx.Cast("int64", places[starts[1] + k * of[axis]])
            at = starts[0] + tirx.Select(index < 0, index + size, index) * into[axis]
            out[at] = join(out[at], new[starts[2] + k * by[axis]])

    def build(given: Any, made: Any) -> Any:
        with IRBuilder() as builder:
            with T.seq_scope():
                write(*map(T.buffer_proxy, [*given, *made]))
            return builder.get()

    return te.extern(
        [data.shape], [data, indices, updates], build, dtype=str(data.dtype), name="scatter_elements"
    )
