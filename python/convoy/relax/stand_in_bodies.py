"""The bodies of functions that stand in for others: how they are written, and read after a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tvm import relax
from tvm.ir import Expr, GlobalVar, Op, Var
from tvm.relax.expr import _update_type

from convoy.relax.local_functions import bindings_in

STANDS_FOR = "convoy_stands_for"
"""Attribute of a stand-in: the number of the function it stands for."""


def calling(call: Callable[[list[Expr]], relax.Call], like: relax.Function) -> relax.Function:
    """A function ``like`` another, of one call, of its parameters and of what the other reads around it."""
    params = [relax.Var(param.name, param.ty) for param in like.params]
    value = call([*params, *relax.analysis.free_vars(like)])
    result = relax.Var("result", like.ret_ty)
    body = relax.SeqExpr([relax.BindingBlock([relax.VarBinding(result, value)])], result)
    # else TVM adds the types later, in place, and what it knew by hash is lost
    for expr in (value, body):
        _update_type(expr, like.ret_ty)
    return relax.Function(params, body, like.ret_ty, like.is_pure)


def renewed(
    function: relax.Function, params: Sequence[Var] | None = None, around: Mapping[Var, Expr] | None = None
) -> relax.Function:
    """A copy with variables of its own, of other parameters; what it reads from around it is as given."""
    params = list(function.params if params is None else params)
    around = {var: var for var in relax.analysis.free_vars(function)} if around is None else around
    closed = relax.Function(
        [*params, *around], function.body, function.ret_ty, function.is_pure, function.attrs
    )
    copy = relax.utils.copy_with_new_vars(closed)  # which renews lengths of around, too, but as parameters
    new = dict(zip(params, copy.params, strict=False))
    read = [new.get(value, value) for value in around.values()]
    return copy.bind_params(dict(zip(copy.params[len(params) :], read, strict=True))) if around else copy


def stands_for(function: object) -> int | None:
    """The number of what a stand-in stands for; None for any other function."""
    if isinstance(function, relax.Function) and STANDS_FOR in (function.attrs or ()):
        return int(function.attrs[STANDS_FOR])
    return None


def handed_on(stand_in: relax.Function, number: int) -> list[Expr] | None:
    """The arguments of the opaque call in a stand-in; None where a pass left no such call, or several."""
    calls = [opened for binding in bindings_in(stand_in.body) if (opened := opened_call(binding.value))]
    return calls[0][1] if len(calls) == 1 and calls[0][0] == number else None


def opened_call(value: Expr) -> tuple[int, list[Expr]] | None:
    """The number and the arguments of the opaque call of a stand-in."""
    if not isinstance(value, relax.Call):
        return None
    read = [value.op, *value.args]
    called, *arguments = read[1:] if isinstance(value.op, Op) and value.args else read
    if isinstance(called, relax.ExternFunc):
        number = _number_in(str(called.global_symbol))
    elif isinstance(called, GlobalVar):
        number = _number_in(called.name_hint)
    else:
        return None
    return None if number is None else (number, arguments)


def _number_in(name: str) -> int | None:
    """The number in the name of what a stand-in calls."""
    start, _, number = name.rpartition("_")
    return int(number) if start == STANDS_FOR and number.isdecimal() else None


_HANDS_ON = ("relax.memory.", "relax.vm.", "relax.builtin.", "relax.call_")
"""Ops of TVM's own around a call of a function, by how their names begin."""


def works_on_result(stand_in: relax.Function) -> bool:
    """Whether a pass computes something of what the opaque call gives."""
    values = {binding.var: binding.value for binding in bindings_in(stand_in.body)}
    made: set[Var] = set()
    worked_on: set[Var] = set()
    for var, value in values.items():
        read = set(relax.analysis.free_vars(value)) if not isinstance(value, relax.Function) else set()
        if opened_call(value) or not read.isdisjoint(made):
            made.add(var)
        computes = isinstance(value, relax.Call) and isinstance(value.op, Op) and not opened_call(value)
        if not read.isdisjoint(worked_on) or (
            computes and not read.isdisjoint(made) and not value.op.name.startswith(_HANDS_ON)
        ):
            worked_on.add(var)
    result = stand_in.body.body if isinstance(stand_in.body, relax.SeqExpr) else stand_in.body
    return not worked_on.isdisjoint(relax.analysis.free_vars(result))
