"""Functions written where they are called: found and replaced, all else left as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import relax
from tvm.ir import BaseFunc, Expr
from tvm.relax.expr import _update_type

Replace = Callable[[str, relax.Function], relax.Function | None]
"""What to put in place of a local function, of this variable's name; None to look inside of it."""


def replace_local(function: BaseFunc, replace: Replace) -> BaseFunc:
    """``function`` with its local functions replaced; the very same object where none is.

    In Relax's normal form a function is the value of a binding: in a body, a branch, or another local function.
    """
    if not isinstance(function, relax.Function):
        return function
    body = _replace_in(function.body, replace)
    if body.same_as(function.body):
        return function
    return relax.Function(
        function.params, body, function.ret_ty, function.is_pure, function.attrs, function.span
    )


def _replace_in(body: Expr, replace: Replace) -> Expr:
    if not isinstance(body, relax.SeqExpr):
        return body
    blocks = []
    for block in body.blocks:
        bindings = [_rebind(binding, replace) for binding in block.bindings]
        same = all(new.same_as(old) for new, old in zip(bindings, block.bindings, strict=True))
        blocks.append(block if same else type(block)(bindings, block.span))
    if all(new.same_as(old) for new, old in zip(blocks, body.blocks, strict=True)):
        return body
    return _typed(relax.SeqExpr(blocks, body.body, body.span), body)


def _rebind(binding: relax.Binding, replace: Replace) -> relax.Binding:
    value = binding.value
    if isinstance(value, relax.Function):
        new: Any = replace(str(binding.var.name), value) or replace_local(value, replace)
    elif isinstance(value, relax.If):
        branches = [_replace_in(branch, replace) for branch in (value.true_branch, value.false_branch)]
        if branches[0].same_as(value.true_branch) and branches[1].same_as(value.false_branch):
            return binding
        new = _typed(relax.If(value.cond, *branches, value.span), value)
    else:
        return binding
    return binding if new.same_as(value) else relax.VarBinding(binding.var, new, binding.span)


def _typed(new: Expr, old: Expr) -> Expr:
    _update_type(new, old.ty)
    return new
