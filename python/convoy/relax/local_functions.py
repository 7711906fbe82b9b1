"""Functions written where they are called: found and replaced, all else left as it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tvm import relax
from tvm.ir import BaseFunc, Expr, Var
from tvm.relax.expr import _update_type
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm_ffi import structural_equal

Replace = Callable[[str, relax.Function], relax.Function | None]
"""What to put in place of a local function, of this variable's name; None to look inside of it."""


def replace_local(function: BaseFunc, replace: Replace) -> BaseFunc:
    """``function`` with its local functions replaced; the very same object where none is.

    In Relax's normal form a function is the value of a binding, in a body, a branch or another local one.
    """
    if not isinstance(function, relax.Function):
        return function
    walk = _Walk(replace)
    replaced = walk.function(function)
    return _Renaming(walk.renamed).visit_expr(replaced) if walk.renamed else replaced


def bindings_in(body: Expr) -> Iterator[relax.Binding]:
    """The bindings of a body and of its branches, and of the functions in it."""
    for block in body.blocks if isinstance(body, relax.SeqExpr) else ():
        for binding in block.bindings:
            yield binding
            value = binding.value
            if isinstance(value, relax.If):
                yield from bindings_in(value.true_branch)
                yield from bindings_in(value.false_branch)
            elif isinstance(value, relax.Function):
                yield from bindings_in(value.body)


@dataclass
class _Walk:
    replace: Replace
    renamed: dict[Var, Var] = field(default_factory=dict)
    """Variables of functions whose type is another now."""

    def function(self, function: relax.Function) -> relax.Function:
        body = self.body(function.body)
        if body.same_as(function.body):
            return function
        return relax.Function(
            function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
        )

    def body(self, body: Expr) -> Expr:
        if not isinstance(body, relax.SeqExpr):
            return body
        blocks = []
        for block in body.blocks:
            bindings = [self.binding(binding) for binding in block.bindings]
            same = all(new.same_as(old) for new, old in zip(bindings, block.bindings, strict=True))
            blocks.append(block if same else type(block)(bindings, block.span))
        if all(new.same_as(old) for new, old in zip(blocks, body.blocks, strict=True)):
            return body
        return _typed(relax.SeqExpr(blocks, body.body, body.span), body)

    def binding(self, binding: relax.Binding) -> relax.Binding:
        var, value = binding.var, binding.value
        new: Any = value
        if isinstance(value, relax.Function):
            new = self.replace(str(var.name), value) or self.function(value)
            if not structural_equal(new.ty, value.ty):
                self.renamed[var] = var = type(var)(var.name, new.ty)
        elif isinstance(value, relax.If):
            branches = [self.body(value.true_branch), self.body(value.false_branch)]
            if not (branches[0].same_as(value.true_branch) and branches[1].same_as(value.false_branch)):
                new = _typed(relax.If(value.cond, *branches, value.span), value)
        return binding if new.same_as(value) else relax.VarBinding(var, new, binding.span)


@mutator
class _Renaming(PyExprMutator):  # type: ignore[misc]
    def __init__(self, renamed: dict[Var, Var]) -> None:
        super().__init__()
        self.renamed = renamed

    def visit_var_(self, op: Var) -> Var:
        return self.renamed.get(op, op)

    def visit_dataflow_var_(self, op: Var) -> Var:
        return self.renamed.get(op, op)


def _typed(new: Expr, old: Expr) -> Expr:
    _update_type(new, old.ty)
    return new
