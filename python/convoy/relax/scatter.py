"""Elements that are written where indices say, of fewer rows or columns than the data have; and rows.

TVM counts the elements of the data as if they had the indices' other axes (0.27): along these what is
written lies elsewhere, and nothing says so.  Of rows it wakes all threads for each one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from math import prod
from typing import Any

from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.sym import Analyzer

from convoy.relax.dataflow import number, op_name
from convoy.relax.rewriting import length, rewriting, write_loops
from convoy.relax.schedule import SHARED

PART = 1024
"""Elements of a row that a thread writes at least, where several share rows."""
_ONE = tirx.IntImm("int64", 1)
_JOIN: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "mean": lambda old, new: (old + new) / 2,
    "min": tirx.min,
    "max": tirx.max,
}


def scatter_by_coordinates() -> Pass:
    """Pass that writes out scatters of rows, and of elements whose indices have other sizes than data."""
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
            if number(indices[-1]) is None:  # how many axes they name only a run says
                return op
            return self.builder_.call_te(
                _scatter_rows, *op.args, str(op.attrs.reduction), primfunc_name_hint="scatter_nd"
            )
        axis, known = int(op.attrs.axis) % len(data), Analyzer()
        along = zip(data, indices, strict=True)
        if all(known.can_prove_equal(a, b) for i, (a, b) in enumerate(along) if i != axis):
            return op
        reduction = str(op.attrs.reduction)
        return self.builder_.call_te(
            _scatter, *op.args, axis, reduction, primfunc_name_hint="scatter_elements"
        )


def _scatter_rows(data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str) -> te.Tensor:
    """``data`` with each row of the updates at the place that a row of indices says, one after the other.

    A row is all behind the axes that the indices name.  Threads share long ones: at the same place they
    write other elements.
    """
    named, join = int(indices.shape[-1]), _JOIN[reduction]
    row, total = (
        Analyzer().simplify(prod(sizes, start=_ONE)) for sizes in (data.shape[named:], data.shape)
    )
    places = prod(indices.shape[:-1], start=_ONE)
    parts = Analyzer().simplify(tirx.ceildiv(row, PART))

    def write(old: Any, given: Any, new: Any, out: Any) -> None:
        with _sharing(total)(0, total) as element:
            out[element] = old[element]
        by_parts = T.serial if number(parts) == 1 else _sharing(row * places)
        with by_parts(0, parts) as part, T.serial(0, places) as place:
            at = tirx.IntImm("int64", 0)
            for axis in range(named):
                at = at * data.shape[axis] + tirx.Cast("int64", given[place * named + axis])
            with T.serial(0, tirx.min(row - part * PART, PART)) as k:
                element = part * PART + k
                out[at * row + element] = join(out[at * row + element], new[place * row + element])

    return write_loops([data, indices, updates], data.shape, write, "scatter_nd")


def _sharing(elements: Any) -> Any:
    """How a loop over so many elements runs: by one thread, if they are known to be few."""
    count = number(Analyzer().simplify(elements))
    return T.parallel if count is None or count >= SHARED else T.serial


def _strides(shape: Sequence[Any]) -> list[Any]:
    strides: list[Any] = [_ONE]
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
