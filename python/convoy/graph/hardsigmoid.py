"""HardSigmoid and HardSwish written out in elementwise ops."""

from __future__ import annotations

from dataclasses import dataclass

from convoy.graph.polynomial import Arithmetic, Expr, find_atoms, look_inside, read_polynomial

_GATE, _GATED = (0, 1), (1, 1)
"""The clip alone, and the clip times x."""


@dataclass(frozen=True)
class HardSigmoid:
    """min(max(a·x + b, 0), 1), and x times that if ``gated``."""

    x: Expr
    a: float
    b: float
    gated: bool
    clip: Expr
    """The clip in it, which may be to [0, 6] and divided by 6 later."""

    @property
    def is_hardswish(self) -> bool:
        return self.gated and max(abs(self.a - 1 / 6), abs(self.b - 1 / 2)) < 1e-6


def find_hardsigmoid(expr: Expr, at: Arithmetic) -> HardSigmoid | None:
    """What ``expr`` is if it is a line, clipped and scaled to [0, 1], in whatever order; else None.

    A clip to [0, 1] without a line in it is only a clip.
    """
    for clip in look_inside(expr, at, depth=3):
        line_and_bounds = at.clip(clip)
        if line_and_bounds is None or line_and_bounds[1] != 0.0:
            continue
        inside, _, high = line_and_bounds
        for x in find_atoms(inside, at):
            line = read_polynomial(inside, [x], at)
            if line is None or not set(line) <= {(0,), (1,)} or not line.get((1,)) or line == {(1,): 1.0}:
                continue
            whole = read_polynomial(expr, [x, clip], at) or {}
            ((term, scale),) = whole.items() if len(whole) == 1 else (((), 0.0),)
            if term in (_GATE, _GATED) and abs(high * scale - 1.0) < 1e-6:
                a, b = line[(1,)] * scale, line.get((0,), 0.0) * scale
                return HardSigmoid(x, a, b, term == _GATED, clip)
    return None
