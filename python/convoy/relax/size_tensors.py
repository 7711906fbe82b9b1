"""Sizes that become a tensor as the model runs are computed by a function of their own.

TVM fuses the function it makes of ``shape_to_tensor``, whose parameters are open sizes, with ops whose
tensors have those sizes; the fused function then defines a size twice, which TVM refuses (0.27).  So it
does with numbers that begin at a size, as places behind a cache do, where tensors have other sizes.
"""

from __future__ import annotations

from typing import Any

from tvm import te
from tvm.ir import Call, Op
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.relax.dataflow import number
from convoy.relax.rewriting import APART, nth, rewriting

TO_TENSOR = Op.get("relax.shape_to_tensor")
SPACED = Op.get("relax.arange")


def compute_sizes_apart() -> Pass:
    """Pass that writes ``shape_to_tensor`` of open sizes, and ``arange`` from one, as functions apart."""
    return rewriting(_Apart, "convoy.compute_sizes_apart")


@mutator
class _Apart(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, op: Call) -> Call:
        op = super().visit_call_(op)
        if op.op == SPACED and number(op.args[0]) is None:
            return self._space(op)
        if op.op != TO_TENSOR:
            return op
        values = op.args[0].ty.values
        if values is None or all(number(value) is not None for value in values):
            return op
        return self.builder_.call_te(_stack, list(values), primfunc_name_hint="sizes", primfunc_attrs=APART)

    def _space(self, op: Call) -> Call:
        start, _, step = op.args
        if str(op.ty.dtype) != "int64" or number(step) is None or op.ty.shape is None:
            return op
        return self.builder_.call_te(
            _count, start, step, op.ty.shape.values[0], primfunc_name_hint="arange", primfunc_attrs=APART
        )


def _count(start: Any, step: Any, count: Any) -> te.Tensor:
    return te.compute((count,), lambda i: start + i * step)


def _stack(sizes: list[Any]) -> te.Tensor:
    return te.compute((len(sizes),), lambda i: nth(sizes, i))
