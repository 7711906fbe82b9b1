"""Literals that Convoy's functions are called with, written into them.

A region that was cut out before its weights were known takes them as parameters; its kernels want them
packed.
"""

from __future__ import annotations

from tvm import relay
from tvm.ir import GlobalVar, IRModule

from convoy.relay.lift import Symbols
from convoy.relay.module import functions_of, replace_functions
from convoy.relay.no_touch import rewrite_calls
from convoy.relay.partition import external_functions
from convoy.relay.resolve import is_external


def bind_literals(module: IRModule) -> IRModule:
    """The module without the arguments of Convoy's functions that are the same literal at every call.

    Functions of other codegens get what TVM gives them.  A function that would be left without parameters
    keeps its first.
    """
    functions = external_functions(module)
    calls: dict[GlobalVar, list[relay.Call]] = {}

    def note(_: relay.Call, call: relay.Call) -> relay.Expr:
        if isinstance(call.op, GlobalVar) and call.op in functions:
            calls.setdefault(call.op, []).append(call)
        return call

    rewrite_calls(module, note)
    literals = {var: _literals(of_one) for var, of_one in calls.items()}
    literals = {var: found for var, found in literals.items() if found}
    if not literals:
        return module

    def drop(_: relay.Call, call: relay.Call) -> relay.Expr:
        if not isinstance(call.op, GlobalVar) or call.op not in literals:
            return call
        args = [arg for i, arg in enumerate(call.args) if i not in literals[call.op]]
        return relay.Call(call.op, args, None, None, call.span)

    symbols = Symbols()
    new = {
        var: symbols.named(_bound(function, literals.get(var, {})))
        for var, function in functions_of(module)
        if is_external(function)
    }
    return relay.transform.InferType()(replace_functions(rewrite_calls(module, drop), new))


def _literals(calls: list[relay.Call]) -> dict[int, relay.Constant]:
    """The literals among the arguments of these calls of one function, by their places."""
    first, *others = calls
    found = {
        i: arg
        for i, arg in enumerate(first.args)
        if isinstance(arg, relay.Constant) and all(other.args[i].same_as(arg) for other in others)
    }
    if len(found) == len(first.args):
        found.pop(0, None)
    return found


def _bound(function: relay.Function, literals: dict[int, relay.Constant]) -> relay.Function:
    if not literals:
        return function
    params = list(function.params)
    body = relay.bind(function.body, {params[i]: literal for i, literal in literals.items()})
    kept = [param for i, param in enumerate(params) if i not in literals]
    return relay.Function(
        kept, body, function.ret_type, function.type_params, function.attrs, function.span
    )
