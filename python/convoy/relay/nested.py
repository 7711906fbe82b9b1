"""Results that are tuples of tuples: cut out flat, and nested again.

TVM's AnnotateTarget takes tuples into a region with what they hold.  A tuple within a tuple would be a
result of the external function, which has tensors for results.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tvm import ir, relay
from tvm.ir import GlobalVar, IRModule

from convoy.relay.module import replace_functions

Nested = dict[GlobalVar, relay.Function]
"""Functions with nested results, as they were."""


def flatten_results(module: IRModule, own: Sequence[GlobalVar]) -> tuple[IRModule, Nested]:
    """The module with flat results of its own functions, and those that had nested ones."""
    nested = {var: module[var] for var in own if _is_nested(module[var].body)}
    if not nested:
        return module, nested
    flat = {
        var: _with_result(function, relay.Tuple(list(_leaves(function.body))), None)
        for var, function in nested.items()
    }
    return relay.transform.InferType()(replace_functions(module, flat)), nested


def nest_results(module: IRModule, nested: Nested) -> IRModule:
    """The module with the results of these functions nested as they were."""
    if not nested:
        return module
    changed = {var: _nest_result(module[var], before) for var, before in nested.items()}
    return relay.transform.InferType()(replace_functions(module, changed))


def _nest_result(flat: relay.Function, before: relay.Function) -> relay.Function:
    count = len(list(_leaves(before.body)))
    if isinstance(flat.body, relay.Tuple):
        leaves = list(flat.body.fields)
    else:
        leaves = [relay.TupleGetItem(flat.body, i) for i in range(count)]
    return _with_result(flat, _like(before.body, iter(leaves)), before.ret_type)


def _with_result(function: relay.Function, body: relay.Expr, ret_type: ir.Type | None) -> relay.Function:
    return relay.Function(
        list(function.params), body, ret_type, function.type_params, function.attrs, function.span
    )


def _is_nested(result: relay.Expr) -> bool:
    return isinstance(result, relay.Tuple) and any(
        isinstance(field, relay.Tuple) for field in result.fields
    )


def _leaves(result: relay.Expr) -> Iterator[relay.Expr]:
    if not isinstance(result, relay.Tuple):
        yield result
        return
    for field in result.fields:
        yield from _leaves(field)


def _like(result: relay.Expr, leaves: Iterator[relay.Expr]) -> relay.Expr:
    """``leaves`` in the tuples of ``result``."""
    if not isinstance(result, relay.Tuple):
        return next(leaves)
    return relay.Tuple([_like(field, leaves) for field in result.fields], result.span)
