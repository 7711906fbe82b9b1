"""Constants without elements are made when a network runs: what TVM writes of one it cannot read (0.27)."""

from __future__ import annotations

from typing import Any

from tvm import relax, te, tirx
from tvm.ir.transform import Pass
from tvm.relax.expr_functor import PyExprMutator, mutator

from convoy.relax.dataflow import is_constant
from convoy.relax.rewriting import rewriting


def make_empty() -> Pass:
    """Pass that writes a call that makes nothing in the place of each constant without elements.

    It stands behind TVM's FoldConstant, which would make a constant of the call again.
    """
    return rewriting(_Empty, "convoy.make_empty", _holds_empty)


def _holds_empty(function: relax.Function) -> bool:
    found: list[Any] = []
    relax.analysis.post_order_visit(function, lambda e: found.append(e) if _is_empty(e) else None)
    return bool(found)


def _is_empty(expr: Any) -> bool:
    return is_constant(expr) and 0 in expr.value.shape


@mutator
class _Empty(PyExprMutator):  # type: ignore[misc]
    def visit_generic_const_(self, op: Any) -> relax.Expr:
        if not _is_empty(op):
            return op
        sizes, dtype = list(map(int, op.value.shape)), str(op.ty.dtype)

        def nothing() -> te.Tensor:
            return te.compute(sizes, lambda *_: tirx.const(0, dtype), name="nothing")

        return self.builder_.emit_te(nothing, primfunc_name_hint="nothing")
