"""Calls of global functions by other variables."""

from __future__ import annotations

from collections.abc import Mapping

from tvm import relax
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


@mutator
class Strangers(PyExprMutator):  # type: ignore[misc]
    """Calls global functions as if they were of another module."""

    def __init__(self, present: Mapping[str, GlobalVar]) -> None:
        super().__init__()
        self.present = present

    def visit_call_(self, op: relax.Call) -> relax.Call:
        op = super().visit_call_(op)
        if not isinstance(op.op, GlobalVar) or op.op.name_hint not in self.present:
            return op
        return relax.Call(relax.ExternFunc(op.op.name_hint), op.args, op.attrs, [op.ty], op.span)


@mutator
class Acquaintances(PyExprMutator):  # type: ignore[misc]
    """The opposite of ``Strangers``."""

    def __init__(self, present: Mapping[str, GlobalVar]) -> None:
        super().__init__()
        self.present = present

    def visit_call_(self, op: relax.Call) -> relax.Call:
        op = super().visit_call_(op)
        known = isinstance(op.op, relax.ExternFunc) and str(op.op.global_symbol) in self.present
        return relax.Call(self.present[str(op.op.global_symbol)], op.args, op.attrs) if known else op
