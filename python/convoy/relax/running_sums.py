"""Running sums along another axis than the last, row by row: TVM adds up column by column.

So it reads each line of the cache once for each of its elements (0.27).
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any

from tvm import te, tirx
from tvm.ir import Call
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from convoy.relax.dataflow import op_name
from convoy.relax.rewriting import rewriting


def add_rows() -> Pass:
    """Pass that writes out ``cumsum`` along any axis but the last."""
    return rewriting(_Sums, "convoy.add_rows")


@mutator
class _Sums(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        if op_name(op) != "cumsum" or op.attrs.axis is None or op.ty.shape is None:
            return op
        axis, (x,) = int(op.attrs.axis) % op.ty.ndim, op.args
        if axis == op.ty.ndim - 1 or x.ty.shape is None:
            return op
        return self.builder_.call_te(
            _add, x, axis, str(op.ty.dtype), bool(op.attrs.exclusive), primfunc_name_hint="cumsum"
        )


def _add(x: te.Tensor, axis: int, dtype: str, exclusive: bool) -> te.Tensor:
    """``x`` and the rows before; or ``exclusive``: only these.  A row is all behind the axis."""
    *others, count = x.shape[: axis + 1]
    row = math.prod(x.shape[axis + 1 :])

    def build(given: Any, made: Any) -> Any:
        with IRBuilder() as builder:
            data, sums = map(T.buffer_proxy, [*given, *made])
            with ExitStack() as loops:
                start = tirx.IntImm("int64", 0)
                for i, size in enumerate(others):
                    start = start * size + loops.enter_context((T.serial if i else T.parallel)(0, size))
                k = loops.enter_context(T.serial(0, count))
                j = loops.enter_context(T.serial(0, row))
                at = (start * count + k) * row + j
                with T.If(k == 0):
                    with T.Then():
                        sums[at] = tirx.const(0, dtype) if exclusive else data[at].astype(dtype)
                    with T.Else():
                        added = data[at - row] if exclusive else data[at]
                        sums[at] = sums[at - row] + added.astype(dtype)
            return builder.get()

    return te.extern([list(x.shape)], [x], build, dtype=dtype, name="cumsum")
