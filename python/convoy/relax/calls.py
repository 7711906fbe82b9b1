"""Calls of global functions by other variables."""

from __future__ import annotations

from collections.abc import Mapping

from tvm.ir import GlobalVar
from tvm.relax.expr_functor import PyExprMutator, mutator


@mutator
class Calls(PyExprMutator):  # type: ignore[misc]
    """Calls global functions by the variables given, by name."""

    def __init__(self, present: Mapping[str, GlobalVar]) -> None:
        super().__init__()
        self.present = present

    def visit_global_var_(self, op: GlobalVar) -> GlobalVar:
        return self.present.get(op.name_hint, op)
