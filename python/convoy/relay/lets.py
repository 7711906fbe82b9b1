"""What Relay functions have beside dataflow: lets, and functions written inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tvm import relay

from convoy.offload import reasons
from convoy.relay.dataflow import (
    Change,
    Dataflow,
    op_name,
    operands,
    post_order,
    rebuild,
    renewed,
    with_body,
)
from convoy.relay.no_touch import is_marked, is_open
from convoy.relay.opaque import OPAQUE


def without_lets(function: relay.Function) -> relay.Function:
    """``function`` with each value in the places of the variable a let binds it to.

    Functions stay bound, as they may call themselves.  So do all values of a body where a function inside,
    a match or a reference may use one: it would be computed again with each call.
    """
    new: dict[relay.Expr, relay.Expr] = {}

    @cache
    def enter(inner: relay.Function) -> relay.Function:
        return renew(inner) if is_open(inner) else inner

    def renew(whole: relay.Function) -> relay.Function:
        nodes = list(post_order(whole.body))
        lets = {node.var: node.value for node in nodes if _binds_value(node)}
        inside = [part for node in nodes for part in _functions(node)]
        caught = {var for inner in inside for var in relay.analysis.free_vars(inner)}
        caught |= {
            node.op for node in nodes if isinstance(node, relay.Call) and isinstance(node.op, relay.Var)
        }
        kept = not caught.isdisjoint(lets) or any(isinstance(node, OPAQUE) for node in nodes)
        for node in nodes:
            if node in new:
                continue
            if node in lets and not kept:
                new[node] = new[lets[node]]
            elif _binds_value(node) and not kept:
                new[node] = new[node.body]
            else:
                new[node] = renewed(node, new, lambda _, call: call, enter)
        return with_body(whole, new[whole.body])

    return renew(function)


def misplaced(flow: Dataflow, params: Sequence[relay.Var]) -> dict[relay.Call, str]:
    """Why calls of the function of these parameters cannot be cut out where they stand.

    TVM's PartitionGraph loses track of regions that lets divide, of those on both sides of an ``If`` that
    has some inside, and of those that a function inside shares with the one around it.
    """
    if set(relay.analysis.free_vars(flow.result)) - set(params):
        return dict.fromkeys(flow.calls, reasons.BOUND)
    lets = [node for node in flow.nodes if isinstance(node, relay.Let)]
    # a function that is handed on is as bad, but for TVM's while_loop, a let that is its variable
    if any(_binds_value(let) or any(user != let for user in flow.users_of(let.var)) for let in lets):
        return dict.fromkeys(flow.calls, reasons.BOUND)
    outside: set[relay.Expr] = set()
    waiting = [flow.result]
    while waiting:
        node = waiting.pop()
        if node not in outside:
            outside.add(node)
            waiting += [node.cond] if isinstance(node, relay.If) else operands(node)
    return {call: reasons.IN_BRANCH for call in flow.calls if call not in outside}


def _binds_value(node: relay.Expr) -> bool:
    return isinstance(node, relay.Let) and not isinstance(node.value, relay.Function)


def _functions(node: relay.Expr) -> list[relay.Function]:
    """The functions written at a node."""
    parts = (node, node.op) if isinstance(node, relay.Call) else (node,)
    return [part for part in parts if isinstance(part, relay.Function)]


def open_functions(function: relay.Function) -> list[relay.Function]:
    """``function`` and those written inside it that are open, each once."""
    found = {function: None}
    waiting = [function]
    while waiting:
        for node in post_order(waiting.pop().body):
            for inner in _functions(node):
                if is_open(inner) and inner not in found:
                    found[inner] = None
                    waiting.append(inner)
    return list(found)


def rebuild_open(function: relay.Function, change: Change) -> relay.Function:
    """``function``, and those written inside it that are open, with what ``change`` makes of each call."""

    def enter(inner: relay.Function) -> relay.Function:
        return rebuild(inner, change, enter) if is_open(inner) else inner

    return enter(function)


def unseen_calls(function: relay.Function) -> list[relay.Call]:
    """The calls of ops that no walk over ``open_functions`` meets, but for those a codegen has taken."""
    walked = open_functions(function) if is_open(function) else []
    seen = {call for inner in walked for call in Dataflow(inner.body).calls}
    found: list[relay.Call] = []

    def visit(node: relay.Expr) -> None:
        if is_marked(node):
            relay.analysis.post_order_visit(node.body, seen.add)
        elif op_name(node):
            found.append(node)

    relay.analysis.post_order_visit(function, visit)
    return [call for call in found if call not in seen]
