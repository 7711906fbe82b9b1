"""GELU written out in elementwise ops."""

from __future__ import annotations

import math
from typing import Literal

from convoy.graph.polynomial import (
    Arithmetic,
    Expr,
    Polynomial,
    equals,
    find_atoms,
    look_inside,
    read_polynomial,
)

_ROOT = math.sqrt(2 / math.pi)
_HALF: Polynomial = {(1, 0): 0.5, (1, 1): 0.5}
"""x/2 + x·c/2, with the curve c as a second atom: what all orders of the product come to."""


def find_gelu(expr: Expr, at: Arithmetic) -> tuple[Literal["gelu", "gelu_tanh"], Expr] | None:
    """The x of which ``expr`` is the GELU, and which; None if it is none.

    gelu: x·(1 + erf(x/√2))/2; gelu_tanh: x·(1 + tanh(√(2/π)·(x + 0.044715·x³)))/2.
    """
    for curve in look_inside(expr, at, depth=4):
        kind, inside = at.operation(curve)
        if kind not in ("erf", "tanh"):
            continue
        for x in find_atoms(inside[0], at):
            if not equals(read_polynomial(expr, [x, curve], at), _HALF):
                continue
            argument = read_polynomial(inside[0], [x], at)
            if kind == "erf" and equals(argument, {(1,): math.sqrt(0.5)}):
                return "gelu", x
            if kind == "tanh" and equals(argument, {(1,): _ROOT, (3,): 0.044715 * _ROOT}):
                return "gelu_tanh", x
    return None
