"""Activations that Relay says in several ops: SiLU, HardSwish, GELU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import relay

from convoy.graph.idioms import find_activation
from convoy.ops.table import kind_of
from convoy.relay import attributes
from convoy.relay.dataflow import constant, dims, op_name


@dataclass(frozen=True)
class Idiom:
    """An activation in several calls, in running order."""

    name: str
    calls: tuple[relay.Call, ...]
    data: relay.Expr


def match(last: relay.Call) -> Idiom | None:
    """The idiom that ends with this call; None if there is none, or it broadcasts its data."""
    found = find_activation(last, _RELAY)
    if found is None or dims(found.x) != dims(last):
        return None
    inside = dict.fromkeys([*_between(last, found.x), last])
    return Idiom(found.kind, tuple(inside), found.x)


def _between(expr: relay.Call, source: relay.Expr) -> list[relay.Call]:
    """The calls that make ``expr`` of ``source``, without the two, operands before their readers."""
    found: list[relay.Call] = []
    for arg in expr.args:
        if isinstance(arg, relay.Call) and not arg.same_as(source):
            found += [*_between(arg, source), arg]
    return found


class _Arithmetic:
    """``graph.polynomial.Arithmetic`` of Relay."""

    def scalar(self, expr: relay.Expr) -> float | None:
        array = constant(expr)
        return float(array.reshape(())) if array is not None and array.size == 1 else None

    def operation(self, expr: relay.Expr) -> tuple[str, Sequence[relay.Expr]]:
        kind = kind_of(op_name(expr))
        return kind, expr.args if kind else ()

    def clip(self, expr: relay.Expr) -> tuple[relay.Expr, float, float] | None:
        return (expr.args[0], *attributes.bounds(expr)) if op_name(expr) == "clip" else None

    def same(self, a: relay.Expr, b: relay.Expr) -> bool:
        return bool(a.same_as(b))


_RELAY = _Arithmetic()
