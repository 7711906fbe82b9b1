"""The elements, or the parts along an axis, that differ, in loops of their own: TVM calls NumPy (0.27).

As NumPy has it NaN is like NaN, and greater than all else.  A library with a call of NumPy would need
Python where it runs.
"""

# mypy: ignore-errors
# What TVMScript parses is Python in its form alone.

from __future__ import annotations

import math
from typing import Any

from tvm import relax, te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script import tirx as T

from convoy.relax.dataflow import number, op_name
from convoy.relax.rewriting import rewriting
from convoy.relax.sizes import LATE


def find_unique_in_loops() -> Pass:
    """Pass that writes out ``unique``: rows are sorted, numbered, and the first of each kind is taken."""
    return rewriting(_Unique, "convoy.find_unique_in_loops")


@mutator
class _Unique(PyExprMutator):
    def visit_call_(self, op: Call) -> relax.Expr:
        op = super().visit_call_(op)
        if op_name(op) != "unique" or op.args[0].ty.shape is None:
            return op
        x, in_order, *asked = op.args[:5]
        emit, shape = self.builder_.emit, list(x.ty.shape.values)
        axis = int(number(op.args[5])) % len(shape) if len(op.args) > 5 else None
        if axis is None:
            x, axis, shape = emit(relax.op.reshape(x, [math.prod(shape)])), 0, [math.prod(shape)]
        rows = self.rows(x, axis, shape)
        count = shape[axis]
        sort = self.builder_.add_func(_sort(str(rows.ty.dtype)), "sort_rows")
        order = emit(relax.call_tir(sort, [rows], [_whole_numbers(count)] * 2))
        name = self.builder_.add_func(_number(str(rows.ty.dtype), bool(number(in_order))), "number_rows")
        given = [rows, emit(relax.TupleGetItem(order, 0))]
        found = emit(relax.call_tir(name, given, [*[_whole_numbers(count)] * 4, _whole_numbers(1)]))
        kinds, firsts, counts, total = (emit(relax.TupleGetItem(found, i)) for i in (0, 1, 2, 4))
        kept = tirx.Var(LATE, "int64")
        self.builder_.match_cast(emit(relax.op.tensor_to_shape(total)), relax.ShapeType([kept]))
        firsts, counts = (
            emit(self.builder_.call_te(_begin, x, kept, primfunc_name_hint="begin_of"))
            for x in (firsts, counts)
        )
        results = [emit(relax.op.take(x, firsts, axis))]
        results += [
            tensor for tensor, wanted in zip((firsts, kinds, counts), asked, strict=True) if number(wanted)
        ]
        return results[0] if len(results) == 1 else relax.Tuple(results)

    def rows(self, x: relax.Expr, axis: int, shape: list[Any]) -> relax.Expr:
        """[count along the axis, all else], of a type that has an order."""
        emit = self.builder_.emit
        if str(x.ty.dtype) == "bool":
            x = emit(relax.op.astype(x, "uint8"))
        if axis:
            x = emit(relax.op.permute_dims(x, [axis, *(i for i in range(len(shape)) if i != axis)]))
        others = math.prod(size for i, size in enumerate(shape) if i != axis)
        return emit(relax.op.reshape(x, [shape[axis], others]))


def _whole_numbers(count: Any) -> relax.TensorType:
    return relax.TensorType([count], "int64")


def _begin(x: te.Tensor, count: tirx.Var) -> te.Tensor:
    return te.compute((count,), lambda i: x[i], name="begin")


def _less(dtype: str) -> Any:
    if "float" not in dtype:
        return lambda a, b: a < b
    # with NaN TVM's comparisons are no use
    return lambda a, b: tirx.all(
        tirx.Not(tirx.isnan(a.astype("float32"))),
        tirx.any(tirx.isnan(b.astype("float32")), a < b),
    )


def _sort(dtype: str) -> tirx.PrimFunc:
    """The numbers of rows in the order of their elements, equal ones in the order they stand in."""
    less = _less(dtype)

    @T.prim_func(private=True, s_tir=True)
    def sort(rows_: T.handle, order_: T.handle, merged_: T.handle):
        T.func_attr({"tirx.noalias": True})
        N = T.int64()
        M = T.int64()
        rows = T.match_buffer(rows_, (N, M), dtype)
        order = T.match_buffer(order_, (N,), "int64")
        merged = T.match_buffer(merged_, (N,), "int64")
        at = T.alloc_buffer((6,), "int64", scope="local")  # width, begin, left, right, column, order
        for i in range(N):
            order[i] = i
        at[0] = T.int64(1)
        while at[0] < N:
            at[1] = T.int64(0)
            while at[1] < N:
                at[2] = at[1]
                at[3] = T.min(at[1] + at[0], N)
                for i in range(T.min(at[1] + at[0] * T.int64(2), N) - at[1]):
                    at[4] = T.int64(0)
                    at[5] = T.int64(0)  # 1: the right one is less, -1: the left one
                    if at[2] >= T.min(at[1] + at[0], N):
                        at[5] = T.int64(1)
                    elif at[3] < T.min(at[1] + at[0] * T.int64(2), N):
                        while at[4] < M and at[5] == T.int64(0):
                            if less(rows[order[at[3]], at[4]], rows[order[at[2]], at[4]]):
                                at[5] = T.int64(1)
                            elif less(rows[order[at[2]], at[4]], rows[order[at[3]], at[4]]):
                                at[5] = T.int64(-1)
                            at[4] = at[4] + T.int64(1)
                    if at[5] == T.int64(1):
                        merged[at[1] + i] = order[at[3]]
                        at[3] = at[3] + T.int64(1)
                    else:
                        merged[at[1] + i] = order[at[2]]
                        at[2] = at[2] + T.int64(1)
                at[1] = T.min(at[1] + at[0] * T.int64(2), N)
            for i in range(N):
                order[i] = merged[i]
            at[0] = at[0] * T.int64(2)

    return sort


def _number(dtype: str, in_order: bool) -> tirx.PrimFunc:
    """The kind of each row, by number; the first row of each kind, and how many there are.

    Kinds are numbered in their order, or as they first stand there.
    """
    less = _less(dtype)
    as_they_stand = not in_order

    @T.prim_func(private=True, s_tir=True)
    def number(
        rows_: T.handle, order_: T.handle, kinds_: T.handle, firsts_: T.handle, counts_: T.handle,
        names_: T.handle, total: T.Buffer((1,), "int64"),
    ):  # fmt: skip
        T.func_attr({"tirx.noalias": True})
        N = T.int64()
        M = T.int64()
        rows = T.match_buffer(rows_, (N, M), dtype)
        order = T.match_buffer(order_, (N,), "int64")
        kinds = T.match_buffer(kinds_, (N,), "int64")
        firsts = T.match_buffer(firsts_, (N,), "int64")
        counts = T.match_buffer(counts_, (N,), "int64")
        names = T.match_buffer(names_, (N,), "int64")
        at = T.alloc_buffer((2,), "int64", scope="local")  # column, whether two rows differ
        total[0] = T.int64(0)
        for i in range(N):
            at[0] = T.int64(0)
            at[1] = T.int64(0)
            if i == T.int64(0):
                at[1] = T.int64(1)
            else:
                while at[0] < M and at[1] == T.int64(0):
                    if less(rows[order[i - T.int64(1)], at[0]], rows[order[i], at[0]]):
                        at[1] = T.int64(1)
                    at[0] = at[0] + T.int64(1)
            if at[1] == T.int64(1):
                firsts[total[0]] = order[i]
                counts[total[0]] = T.int64(0)
                total[0] = total[0] + T.int64(1)
            kinds[order[i]] = total[0] - T.int64(1)
            counts[total[0] - T.int64(1)] = counts[total[0] - T.int64(1)] + T.int64(1)
        if as_they_stand:
            total[0] = T.int64(0)
            for i in range(N):
                if firsts[kinds[i]] == i:
                    names[kinds[i]] = total[0]
                    total[0] = total[0] + T.int64(1)
            for i in range(N):
                kinds[i] = names[kinds[i]]
            for i in range(N):
                if i < total[0]:
                    counts[i] = T.int64(0)
                    firsts[i] = T.int64(-1)
            for i in range(N):
                counts[kinds[i]] = counts[kinds[i]] + T.int64(1)
                if firsts[kinds[i]] < T.int64(0):
                    firsts[kinds[i]] = i

    return number
