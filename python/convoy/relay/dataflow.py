"""A Relay function as a graph: its nodes in running order, who reads what, and how to rebuild it.

Relay's own visitors in Python recurse, and a network deeper than Python's stack ends them.  All
walks here are loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from functools import cache, cached_property
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tvm import ir, relay, tir

from convoy.relay.opaque import OPAQUE, bound_in, parts, with_parts

Dim: TypeAlias = int | Literal["?"]
"""An axis: its length, or a question mark for one known only at run time."""


_COMPUTED = (relay.Let, relay.If, relay.Call, relay.TupleGetItem, *OPAQUE)
"""What computes the operator of a call, such as TVM's ``while_loop``: a let that binds a function."""


class Dataflow:
    """The body of one function; nodes of functions called inside belong to their call."""

    def __init__(self, body: relay.Expr) -> None:
        self.nodes: list[relay.Expr] = list(post_order(body))
        self.result = body

    @cached_property
    def calls(self) -> list[relay.Call]:
        """Calls of ops, in running order."""
        return [node for node in self.nodes if op_name(node)]

    @cached_property
    def users(self) -> dict[relay.Expr, list[relay.Expr]]:
        """The nodes that read each node."""
        found: dict[relay.Expr, list[relay.Expr]] = {}
        for node in self.nodes:
            for operand in dict.fromkeys(operands(node)):
                found.setdefault(operand, []).append(node)
        return found

    def users_of(self, node: relay.Expr) -> list[relay.Expr]:
        return self.users.get(node, [])


def operands(node: relay.Expr) -> Sequence[relay.Expr]:
    """What a node reads; the operator of a call is among it only where it is computed."""
    if isinstance(node, relay.Call):
        return [*node.args, node.op] if isinstance(node.op, _COMPUTED) else list(node.args)
    if isinstance(node, relay.Tuple):
        return list(node.fields)
    if isinstance(node, relay.TupleGetItem):
        return [node.tuple_value]
    if isinstance(node, relay.Let):
        return [node.value, node.body]
    if isinstance(node, relay.If):
        return [node.cond, node.true_branch, node.false_branch]
    return []


def post_order(body: relay.Expr) -> Iterator[relay.Expr]:
    """Every node below ``body`` once, operands before their readers."""
    stack: list[tuple[relay.Expr, Iterator[relay.Expr]]] = [(body, iter(operands(body)))]
    entered = {body}
    while stack:
        node, waiting = stack[-1]
        for operand in waiting:
            if operand not in entered:
                entered.add(operand)
                stack.append((operand, iter(operands(operand))))
                break
        else:
            stack.pop()
            yield node


Change = Callable[[relay.Call, relay.Call], relay.Expr]
"""What takes the place of a call: gets the call as it was, and with its operands as they are now."""
Enter = Callable[[relay.Function], relay.Expr]


def _as_it_is(function: relay.Function) -> relay.Function:
    return function


def rebuild(
    function: relay.Function, change: Change, enter: Enter = _as_it_is, *, everywhere: bool = False
) -> relay.Function:
    """``function`` with every call replaced by what ``change`` makes of it; itself if all calls stay.

    ``enter`` makes what takes the place of a function written inside.  ``everywhere``: in what matches and
    references are made of, too.
    """
    return with_body(function, rebuild_body(function.body, change, enter, everywhere=everywhere))


def rebuild_body(
    body: relay.Expr,
    change: Change,
    enter: Enter = _as_it_is,
    new: dict[relay.Expr, relay.Expr] | None = None,
    *,
    everywhere: bool = False,
) -> relay.Expr:
    """``body`` with every call replaced; an item taken out of a tuple twice is one node.

    ``new`` keeps what took the place of each node, for several bodies that share nodes.
    """
    new = {} if new is None else new
    once = cache(enter)
    items: dict[tuple[relay.Expr, int], relay.Expr] = {}
    for node in post_order(body):
        if node not in new:
            if everywhere and isinstance(node, OPAQUE):
                inside = [rebuild_body(part, change, once, new, everywhere=True) for part in parts(node)]
                made = with_parts(node, inside, {var: new.get(var, var) for var in bound_in(node)})
            else:
                made = renewed(node, new, change, once)
            if isinstance(made, relay.TupleGetItem):
                made = items.setdefault((made.tuple_value, made.index), made)
            new[node] = made
    return new[body]


def replaced(body: relay.Expr, new: Mapping[relay.Expr, relay.Expr]) -> relay.Expr:
    """``body`` with others in the places of some variables, also in functions written in it."""

    def enter(function: relay.Function) -> relay.Function:
        return with_body(function, replaced(function.body, new))

    return rebuild_body(body, lambda _, call: call, enter, dict(new), everywhere=True)


def renewed(
    node: relay.Expr, new: Mapping[relay.Expr, relay.Expr], change: Change, enter: Enter
) -> relay.Expr:
    """What takes the place of ``node``, whose operands ``new`` takes the place of: itself if they stay."""
    if isinstance(node, relay.Function):
        return enter(node)
    read = operands(node)
    same = all(new[operand].same_as(operand) for operand in read)
    if isinstance(node, relay.Let):
        var = new.get(node.var, node.var)
        if same and var.same_as(node.var):
            return node
        return relay.Let(var, new[node.value], new[node.body], node.span)
    if isinstance(node, relay.Call):
        op = enter(node.op) if isinstance(node.op, relay.Function) else new.get(node.op, node.op)
        if same and op.same_as(node.op):
            return change(node, node)
        args = [new[arg] for arg in node.args]
        return change(node, relay.Call(op, args, node.attrs, node.type_args, node.span))
    if isinstance(node, relay.TupleGetItem) and isinstance(new[node.tuple_value], relay.Tuple):
        return new[node.tuple_value].fields[node.index]  # of tuples TVM's graph executor mistakes items
    if same:
        return node
    if isinstance(node, relay.Tuple):
        return relay.Tuple([new[field] for field in node.fields], node.span)
    if isinstance(node, relay.TupleGetItem):
        return relay.TupleGetItem(new[node.tuple_value], node.index, node.span)
    return relay.If(*(new[operand] for operand in read), node.span)


def without_composites(body: relay.Expr) -> relay.Expr:
    """``body`` with every composite written out where it is called; types have to be inferred anew."""

    def change(_: relay.Call, call: relay.Call) -> relay.Expr:
        if isinstance(call.op, relay.Function):
            return relay.bind(call.op.body, dict(zip(call.op.params, call.args, strict=True)))
        return call

    return rebuild_body(body, change)


def with_body(function: relay.Function, body: relay.Expr) -> relay.Function:
    """The same function of another body; itself if it has that body."""
    if body.same_as(function.body):
        return function
    return relay.Function(
        list(function.params), body, function.ret_type, function.type_params, function.attrs, function.span
    )


def with_new_vars(function: relay.Function) -> relay.Function:
    """The same function with variables of its own, those of functions, lets and matches in it, too."""
    new: dict[relay.Expr, relay.Expr] = {}

    def enter(inner: relay.Function) -> relay.Function:
        for var in (*inner.params, *_bound(inner.body)):
            new[var] = relay.Var(var.name_hint, var.type_annotation)
        body = rebuild_body(inner.body, lambda _, call: call, enter, new, everywhere=True)
        params = [new[param] for param in inner.params]
        return relay.Function(params, body, inner.ret_type, inner.type_params, inner.attrs, inner.span)

    return enter(function)


def _bound(body: relay.Expr) -> Iterator[relay.Var]:
    """The variables that lets and matches bind in ``body``, but for those of functions written in it."""
    waiting = [body]
    while waiting:
        for node in post_order(waiting.pop()):
            yield from [node.var] if isinstance(node, relay.Let) else bound_in(node)
            waiting += parts(node)


def with_args(call: relay.Call, args: Sequence[relay.Expr], span: relay.Span | None = None) -> relay.Call:
    """The same call of other operands."""
    return relay.Call(call.op, list(args), call.attrs, call.type_args, span or call.span)


# One expression -------------------------------------------------------------------------------------


def given_name(call: relay.Call) -> str:
    """The name of the model's node, if the importer left one."""
    return str(call.span.source_name.name) if isinstance(call.span, relay.Span) else ""


def op_name(expr: relay.Expr) -> str:
    """``nn.conv2d`` for a call of that op; empty for what is no call of an op."""
    if isinstance(expr, relay.Call) and isinstance(expr.op, ir.Op):
        return str(expr.op.name)
    return ""


def composite_name(expr: relay.Expr) -> str:
    """The pattern of a call of a composite; empty for anything else."""
    if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
        return attribute(expr.op, "Composite")
    return ""


def has_attribute(function: ir.BaseFunc, name: str) -> bool:
    """Has a function an attribute of that name?  To TVM one that is None is none."""
    attrs = function.attrs
    return attrs is not None and name in set(attrs.keys()) and attrs[name] is not None


def attribute(function: ir.BaseFunc, name: str) -> str:
    """A function's attribute as text; empty if it has none of that name."""
    return str(function.attrs[name]) if has_attribute(function, name) else ""


def is_asked(function: ir.BaseFunc, name: str) -> bool:
    """Is an attribute that is a number there, and not 0?"""
    return attribute(function, name) not in ("", "0")


def is_constant(expr: relay.Expr) -> bool:
    return isinstance(expr, relay.Constant)


def constant(expr: relay.Expr) -> NDArray[np.generic] | None:
    """The array ``expr`` is, if it is a constant."""
    return expr.data.numpy() if isinstance(expr, relay.Constant) else None


def dims(of: relay.Expr | ir.Type) -> tuple[Dim, ...] | None:
    """Shape of a tensor or tensor type; None for what is no tensor."""
    ty = of if isinstance(of, ir.Type) else of.checked_type
    if not isinstance(ty, ir.TensorType):
        return None
    return tuple(int(d) if isinstance(d, int | tir.IntImm) else "?" for d in ty.shape)


def dtype(of: relay.Expr | ir.Type) -> str:
    """Element type of a tensor or tensor type; empty for what is no tensor."""
    ty = of if isinstance(of, ir.Type) else of.checked_type
    return str(ty.dtype) if isinstance(ty, ir.TensorType) else ""


def rank(expr: relay.Expr) -> int:
    return len(expr.checked_type.shape)


def tensor_args(call: relay.Call, without: Set[int] = frozenset()) -> list[relay.Expr]:
    """The tensors a call reads, but for arguments at some places; a tuple written out gives its fields."""
    found: list[relay.Expr] = []
    for arg in (arg for i, arg in enumerate(call.args) if i not in without):
        found += arg.fields if isinstance(arg, relay.Tuple) else [arg]
    return found
