"""External functions whose results are tuples of tuples: made flat, and nested again by their callers.

TVM's AnnotateTarget takes a tuple into a region with what it holds, tuples too; but an external function
has tensors for results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tvm import ir, relay
from tvm.ir import GlobalVar, IRModule

from convoy.relay.module import replace_functions
from convoy.relay.no_touch import rewrite_calls


def flatten_results(module: IRModule, external: dict[GlobalVar, relay.Function]) -> IRModule:
    """The module with flat tuples of distinct tensors for the nested results of these functions of it."""
    nested = {var: function for var, function in external.items() if is_nested(function.ret_type)}
    if not nested:
        return module
    leaves = {var: list(_leaves(function.body, function.ret_type)) for var, function in nested.items()}
    distinct = {var: dict(found) for var, found in leaves.items()}

    def change(_: relay.Call, call: relay.Call) -> relay.Expr:
        if not isinstance(call.op, GlobalVar) or call.op not in nested:
            return call
        at = list(distinct[call.op]).index
        items = (relay.TupleGetItem(call, at(leaf)) for leaf, _ in leaves[call.op])
        return _nest(nested[call.op].ret_type, items)

    flat = {var: _flattened(function, distinct[var]) for var, function in nested.items()}
    return relay.transform.InferType()(replace_functions(rewrite_calls(module, change), flat))


def is_nested(result: ir.Type) -> bool:
    """Is there a tuple in this tuple?"""
    return isinstance(result, ir.TupleType) and any(isinstance(ty, ir.TupleType) for ty in result.fields)


def _flattened(function: relay.Function, leaves: Mapping[relay.Expr, ir.Type]) -> relay.Function:
    result = ir.TupleType(list(leaves.values()))
    return relay.Function(
        list(function.params),
        relay.Tuple(list(leaves)),
        result,
        function.type_params,
        function.attrs,
        function.span,
    )


def _leaves(result: relay.Expr, ty: ir.Type) -> Iterator[tuple[relay.Expr, ir.Type]]:
    """The tensors in a result of this type, and their types."""
    if not isinstance(ty, ir.TupleType):
        yield result, ty
        return
    for i, field in enumerate(ty.fields):
        item = result.fields[i] if isinstance(result, relay.Tuple) else relay.TupleGetItem(result, i)
        yield from _leaves(item, field)


def _nest(ty: ir.Type, leaves: Iterator[relay.Expr]) -> relay.Expr:
    """``leaves`` in tuples of this type."""
    if not isinstance(ty, ir.TupleType):
        return next(leaves)
    return relay.Tuple([_nest(field, leaves) for field in ty.fields])
