"""Activations that Relay says in several ops: SiLU, HardSwish, GELU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import relay

from convoy.graph.gelu import find_gelu
from convoy.graph.hardsigmoid import find_hardsigmoid
from convoy.offload.elementwise import kind_of
from convoy.relay import attributes
from convoy.relay.dataflow import constant, dims, op_name

IDIOMS: dict[str, str] = {"silu": "sigmoid", "hardswish": "clip", "gelu": "erf", "gelu_tanh": "tanh"}
"""The activations, by the op that none of them is without."""


def find_source(expr: relay.Call, idiom: str) -> relay.Expr | None:
    """The x of which ``expr`` is this activation; None if it is none, or broadcasts x."""
    source = _FINDERS[idiom](expr)
    return source if source is not None and dims(source) == dims(expr) else None


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


def _find_silu(expr: relay.Call) -> relay.Expr | None:
    """The x of ``expr``, if that is x · sigmoid(x)."""
    return next((x for x, y in _factors(expr) if op_name(y) == "sigmoid" and y.args[0].same_as(x)), None)


def _find_hardswish(expr: relay.Call) -> relay.Expr | None:
    """x · clip(x + 3, 0, 6) / 6, its factors in any order."""
    found = find_hardsigmoid(expr, _RELAY)
    return found.x if found is not None and found.is_hardswish else None


def _factors(expr: relay.Call) -> list[tuple[relay.Expr, relay.Expr]]:
    """The factors of a product, in both orders."""
    if op_name(expr) != "multiply":
        return []
    x, y = expr.args
    return [(x, y), (y, x)]


def _find_gelu(kind: str) -> Callable[[relay.Call], relay.Expr | None]:
    def find(expr: relay.Call) -> relay.Expr | None:
        found = find_gelu(expr, _RELAY)
        return found[1] if found is not None and found[0] == kind else None

    return find


_FINDERS: dict[str, Callable[[relay.Call], relay.Expr | None]] = {
    "silu": _find_silu,
    "hardswish": _find_hardswish,
    "gelu": _find_gelu("gelu"),
    "gelu_tanh": _find_gelu("gelu_tanh"),
}
