"""What Relay functions have beside dataflow: lets, and functions written inside."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from tvm import relay

from convoy.relay.dataflow import Dataflow, attribute, op_name, post_order, renewed, with_body
from convoy.relay.no_touch import is_marked

_OPAQUE = (relay.Match, relay.RefCreate, relay.RefRead, relay.RefWrite)
"""Nodes that are not looked into: no network computes with them."""


def without_lets(function: relay.Function) -> relay.Function:
    """``function`` with each value in the places of the variable a let binds it to.

    TVM's PartitionGraph loses track of regions that lets divide.  Functions stay bound, as they may call
    themselves; so does everything where a match or a reference, which are not looked into, may use it.
    """
    bodies = [list(post_order(inner.body)) for inner in open_functions(function)]
    nodes = bodies[0]
    lets = {
        node.var: node.value
        for node in nodes
        if isinstance(node, relay.Let) and not isinstance(node.value, relay.Function)
    }
    no_lets = not any(isinstance(node, relay.Let) for body in bodies for node in body)
    if no_lets or any(isinstance(node, _OPAQUE) for node in nodes):
        return function
    new: dict[relay.Expr, relay.Expr] = {}

    def enter(inner: relay.Function) -> relay.Function:
        if not is_open(inner):
            return inner
        caught = {var: new[lets[var]] for var in relay.analysis.free_vars(inner) if var in lets}
        plain = without_lets(inner)
        return with_body(plain, relay.bind(plain.body, caught)) if caught else plain

    once = cache(enter)
    for node in nodes:
        if node in lets:
            new[node] = new[lets[node]]
        elif isinstance(node, relay.Let) and node.var in lets:
            new[node] = new[node.body]
        else:
            new[node] = renewed(node, new, lambda _, call: call, once)
    return with_body(function, new[function.body])


def open_functions(function: relay.Function) -> Iterator[relay.Function]:
    """``function`` and those written inside it that are open, each once."""
    yield function
    inside: dict[relay.Function, None] = {}
    for node in post_order(function.body):
        for part in (node, node.op) if isinstance(node, relay.Call) else (node,):
            if isinstance(part, relay.Function) and is_open(part):
                inside[part] = None
    for inner in inside:
        yield from open_functions(inner)


def is_open(function: object) -> bool:
    """Is this a function that no codegen and no fusion has taken already?"""
    marks = ("Compiler", "Composite", "Primitive")
    return isinstance(function, relay.Function) and not any(attribute(function, mark) for mark in marks)


def unseen_calls(function: relay.Function) -> list[relay.Call]:
    """The calls of ops that no walk over ``open_functions`` meets, but for those a codegen has taken."""
    seen = {call for inner in open_functions(function) for call in Dataflow(inner.body).calls}
    found: list[relay.Call] = []

    def visit(node: relay.Expr) -> None:
        if is_marked(node):
            relay.analysis.post_order_visit(node.body, seen.add)
        elif op_name(node):
            found.append(node)

    relay.analysis.post_order_visit(function, visit)
    return [call for call in found if call not in seen]
