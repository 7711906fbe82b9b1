"""Recurrent layers: shape and definition of ``ops.Recurrent``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.graph.messages import require
from convoy.graph.ops import GATES, Curve, Recurrent

Array = NDArray[Any]
Shape = tuple[int, ...]


def recurrent_shape(node: Recurrent, inputs: Sequence[Shape]) -> Shape:
    """Shape of y.

    Raises
    ------
    GraphError
        If the operands do not suit each other.
    """
    gates, lstm = GATES[node.kind], node.kind == "lstm"
    x, r, extra, *states = inputs
    legal = len(r) == 2 and r[1] == gates * r[0]
    require(legal, node, f"weights [H, {gates} · H]", r, "transpose them")
    cells = r[0]
    legal = len(x) >= 3 and x[-1] == gates * cells
    require(legal, node, f"data [.., T, {gates * cells}]", x, "multiply it by the weights of the inputs")
    rows = 3 if lstm else 1
    require(extra == (rows, cells), node, f"rows of cells {(rows, cells)}", extra, "see graph/ops.py")
    first = (*x[:-2], 1, cells)
    legal = len(states) in (0, 2 if lstm else 1) and all(s == first for s in states)
    require(legal, node, f"no state or all of them, {first}", states, "see graph/ops.py")
    return (*x[:-2], x[-2] + lstm, cells)


def run_recurrent(
    node: Recurrent,
    activate: Callable[[Curve, Array], Array],
    x: Array,
    r: Array,
    extra: Array,
    *states: Array,
) -> Array:
    """y, step by step; ``activate`` computes an activation."""

    def gate(v: Array) -> Array:
        return activate(node.gate, _clip(node, v))

    def inner(v: Array) -> Array:
        return activate(node.inner, _clip(node, v))

    *sequences, steps, _ = x.shape
    start = np.zeros((*sequences, len(r)), x.dtype)
    h, c = (states[i][..., 0, :] if i < len(states) else start for i in range(2))
    rows: list[Array] = [h] * steps
    for t in reversed(range(steps)) if node.back else range(steps):
        given, own = (np.split(part, GATES[node.kind], axis=-1) for part in (x[..., t, :], h @ r))
        if node.kind == "lstm":
            i, o, f, g = (a + b for a, b in zip(given, own, strict=True))
            i, f = (gate(a + c * extra[k]) for a, k in ((i, 0), (f, 2)))
            c = f * c + i * inner(g)
            h = gate(o + c * extra[1]) * activate(node.outer, c)
        elif node.kind in ("gru", "gru_reset_first"):
            z, reset = (gate(given[k] + own[k]) for k in (0, 1))
            last = reset * (own[2] + extra[0])
            if node.kind == "gru_reset_first":
                last = (reset * h) @ r[:, 2 * len(r) :]
            h = (1 - z) * inner(given[2] + last) + z * h
        else:
            h = inner(given[0] + own[0])
        rows[t] = h
    return np.stack([*rows, c] if node.kind == "lstm" else rows, axis=-2)


def _clip(node: Recurrent, v: Array) -> Array:
    return np.clip(v, -node.clip, node.clip) if node.clip else v
