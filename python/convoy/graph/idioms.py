"""Activations written out in elementwise ops, recognised in whatever order a frontend wrote them.

| activation | written out | curve c |
|---|---|---|
| silu | x·c | sigmoid(x) |
| mish | x·c | tanh(softplus(x)), with log(1 + exp(x)) or max(x, 0) + log(1 + exp(-abs(x))) |
| gelu | x·(1 + c)/2 | erf(x/√2) |
| gelu_tanh | x·(1 + c)/2 | tanh(√(2/π)·(x + 0.044715·x³)) |
| hardsigmoid | c·k, with k the inverse of the clip's upper bound | clip(a·x + b, 0, 1/k) |
| hardswish | x·c·k | clip(x + 3, 0, 6), k = 1/6 |
| elu | max(x, 0) - a·c, max(x, 0) + a·c | max(1 - exp(x), 0), min(exp(x) - 1, 0) |

One recogniser serves graphs and the modules of both doors, each by an ``Arithmetic`` of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from convoy.graph.ops import UnaryKind
from convoy.graph.polynomial import (
    Arithmetic,
    Expr,
    Polynomial,
    equals,
    find_atoms,
    look_inside,
    read_line,
    read_polynomial,
)

IDIOMS: tuple[UnaryKind, ...] = ("silu", "gelu", "gelu_tanh", "hardswish", "hardsigmoid", "elu", "mish")
"""The activations that are recognised."""

ENDINGS = ("mul", "div", "clip", "add", "sub")
"""Kinds of the op that one ends with."""

_ROOT = math.sqrt(2 / math.pi)
_GATED: Polynomial = {(1, 1): 1.0}
_HALVED: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
"""x·c and x·(1 + c)/2: what all orders of the product come to."""

_CURVES: Mapping[str, tuple[tuple[UnaryKind, Polynomial, Polynomial], ...]] = {
    "sigmoid": (("silu", {(1,): 1.0}, _GATED),),
    "erf": (("gelu", {(1,): math.sqrt(0.5)}, _HALVED),),
    "tanh": (("gelu_tanh", {(1,): _ROOT, (3,): 0.044715 * _ROOT}, _HALVED),),
}
"""By the op of the curve: the activation, what the curve is of, and what it is part of."""


@dataclass(frozen=True)
class Activation:
    """An activation of x; ``a`` and ``b`` as in ``graph.ops.Unary``."""

    kind: UnaryKind
    x: Expr
    a: float = 0.0
    b: float = 0.0
    curve: Expr = None
    """The op in it that is no arithmetic."""
    gated: bool = True
    """x times something, not the curve alone."""


def find_activation(expr: Expr, at: Arithmetic) -> Activation | None:
    """The activation that ``expr`` is; None if it is none."""
    kind, _ = at.operation(expr)
    if kind in ("add", "sub"):
        return _find_elu(expr, at)
    if kind not in ("mul", "div") and at.clip(expr) is None:
        return None
    found = find_line(expr, at)
    if found is not None:
        return found if not found.gated or is_hardswish(found) else None
    for curve in look_inside(expr, at, depth=4):
        kind, inside = at.operation(curve)
        for activation, argument, whole in _CURVES.get(kind, ()):
            for x in find_atoms(inside[0], at):
                if equals(read_polynomial(inside[0], [x], at), argument) and equals(
                    read_polynomial(expr, [x, curve], at), whole
                ):
                    return Activation(activation, x, curve=curve)
        x = _read_softplus(inside[0], at) if kind == "tanh" else None
        if x is not None and equals(read_polynomial(expr, [x, curve], at), _GATED):
            return Activation("mish", x, curve=curve)
    return None


def find_line(expr: Expr, at: Arithmetic, *, merged: bool = False) -> Activation | None:
    """min(max(a·x + b, 0), 1), and x times that, of any line; only one slope of the latter is a hardswish.

    A clip to [0, 1] without a line in it is only a clip.

    Parameters
    ----------
    merged : bool
        Of a hardswish x may be a line itself, and the one in the clip merged with it: x is not in the clip
        then.  Of other lines the clip's would be told from a rounded x: it may be much steeper.
    """
    for clip in look_inside(expr, at, depth=3):
        line_and_bounds = at.clip(clip)
        if line_and_bounds is None or line_and_bounds[1] != 0.0:
            continue
        inside, _, high = line_and_bounds
        for x in find_atoms(inside, at):
            line = read_line(inside, x, at)
            if line is None or line == (1.0, 0.0):
                continue
            for y, slope, shift in _lines_of(x, expr, at) if merged else [(x, 1.0, 0.0)]:
                whole = read_polynomial(expr, [y, clip], at) or {}
                ((term, scale),) = whole.items() if len(whole) == 1 else (((), 0.0),)
                if term not in ((0, 1), (1, 1)) or abs(high * scale - 1.0) >= 1e-6:
                    continue
                a = line[0] / slope
                b = (line[1] - a * shift) * scale
                gated = term == (1, 1)
                found = Activation("hardswish" if gated else "hardsigmoid", y, a * scale, b, clip, gated)
                if y is x or is_hardswish(found):
                    return found
    return None


def _lines_of(x: Expr, expr: Expr, at: Arithmetic) -> list[tuple[Expr, float, float]]:
    """x and the lines of it that are in ``expr``, each with its a and b of a·x + b."""
    lines = [(x, 1.0, 0.0)]
    for y in look_inside(expr, at, depth=3):
        line = None if at.same(y, x) else read_line(y, x, at)
        if line is not None:
            lines.append((y, *line))
    return lines


def is_hardswish(found: Activation) -> bool:
    """Is this x times the line that a hardswish has?"""
    return found.gated and max(abs(found.a - 1 / 6), abs(found.b - 1 / 2)) < 1e-6


def _find_elu(expr: Expr, at: Arithmetic) -> Activation | None:
    """max(x, 0) + a·min(exp(x) - 1, 0): x where it is positive, else a·(exp(x) - 1)."""
    inside = look_inside(expr, at, depth=4)
    for curve in inside:
        x, sign = _read_exponential(curve, at)
        for above in inside if sign else ():
            bound = _read_bound(above, at)
            if bound is None or bound[0] != "max" or not at.same(bound[1], x):
                continue
            whole = read_polynomial(expr, [above, curve], at) or {}
            if set(whole) == {(1, 0), (0, 1)} and abs(whole[1, 0] - 1) < 1e-6:
                return Activation("elu", x, a=sign * whole[0, 1], curve=curve)
    return None


def _read_exponential(expr: Expr, at: Arithmetic) -> tuple[Expr, float]:
    """x, with 1 if ``expr`` is min(exp(x) - 1, 0), -1 if it is max(1 - exp(x), 0), 0 if it is neither."""
    kind, difference = _read_bound(expr, at) or ("", expr)
    sign = {"min": 1.0, "max": -1.0}.get(kind, 0.0)
    for power in look_inside(difference, at, depth=2) if sign else ():
        op, inside = at.operation(power)
        if op == "exp" and equals(read_polynomial(difference, [power], at), {(1,): sign, (0,): -sign}):
            return inside[0], sign
    return None, 0.0


def _read_bound(expr: Expr, at: Arithmetic) -> tuple[str, Expr] | None:
    """``max`` or ``min`` and y, where ``expr`` is max(y, 0) or min(y, 0)."""
    kind, args = at.operation(expr)
    if kind == "relu":
        return "max", args[0]
    if kind in ("max", "min"):
        others = [y for y, bound in (tuple(args), tuple(args)[::-1]) if at.scalar(bound) == 0]
        return (kind, others[0]) if others else None
    clip = at.clip(expr)
    if clip is not None and clip[1:] in ((0.0, math.inf), (-math.inf, 0.0)):
        return "max" if clip[1] == 0.0 else "min", clip[0]
    return None


def _read_softplus(expr: Expr, at: Arithmetic) -> Expr | None:
    """x of which ``expr`` is log(1 + exp(x))."""
    kind, args = at.operation(expr)
    if kind == "softplus":
        return args[0]
    if kind == "log":
        return _read_power_above_one(args[0], at)
    for above, late in (tuple(args), tuple(args)[::-1]) if kind == "add" else ():
        bound, (op, inside) = _read_bound(above, at), at.operation(late)
        power = _read_power_above_one(inside[0], at) if op == "log" else None
        if bound is None or bound[0] != "max" or power is None:
            continue
        minus, of = at.operation(power)
        op, inner = at.operation(of[0]) if minus == "neg" else ("", ())
        if op == "abs" and at.same(inner[0], bound[1]):
            return bound[1]
    return None


def _read_power_above_one(expr: Expr, at: Arithmetic) -> Expr | None:
    """y of which ``expr`` is 1 + exp(y)."""
    for power in look_inside(expr, at, depth=2):
        op, inside = at.operation(power)
        if op == "exp" and equals(read_polynomial(expr, [power], at), {(1,): 1.0, (0,): 1.0}):
            return inside[0]
    return None
