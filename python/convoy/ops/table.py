"""The table of ops: the rows of all families, and what others read of them.

Folds, both doors and what they share go by it.  An op without a row is taken for an elementwise one that
leaves axis 0 alone, and Convoy has no kernel for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from convoy.ops import (
    convolutions,
    elementwise,
    moves,
    norms,
    pools,
    products,
    quantised,
    recurrent,
    reductions,
    resize,
    volumes,
)
from convoy.ops.attributes import is_leaky
from convoy.ops.reader import Call, Reader
from convoy.ops.row import Cost, OpRow

_FAMILIES = (
    elementwise,
    convolutions,
    products,
    quantised,
    recurrent,
    pools,
    reductions,
    norms,
    moves,
    resize,
    volumes,
)
ROWS: tuple[OpRow, ...] = sum((family.ROWS for family in _FAMILIES), ())

OF: dict[str, OpRow] = {name: row for row in ROWS for name in row.names}
"""The row of each name; the two TVMs call no two ops alike."""

RELAX: dict[str, OpRow] = {row.relax: row for row in ROWS if row.relax}
RELAY: dict[str, OpRow] = {row.relay: row for row in ROWS if row.relay}
UNKNOWN = OpRow()


def row_of(name: str) -> OpRow:
    """The row of an op, or ``UNKNOWN``."""
    return OF.get(name, UNKNOWN)


def kind_of(name: str) -> str:
    """What an elementwise op is in a graph; empty for any other op."""
    row = row_of(name)
    return row.unary or row.binary or ""


def activations(rows: Mapping[str, OpRow]) -> dict[str, str]:
    """What patterns call the ops that join a kernel, by their names."""
    return {name: row.activation for name, row in rows.items() if row.activation}


def name_activation(call: Call, at: Reader) -> str:
    """What patterns call this activation; empty for another op, and for slopes that differ."""
    activation = row_of(at.name(call)).activation
    if activation != "prelu":
        return activation
    slopes = at.constant(call.args[1])
    return activation if slopes is not None and is_leaky(slopes) else ""


def of_cost(rows: Mapping[str, OpRow], *costs: Cost) -> tuple[str, ...]:
    """The names of the ops of these costs."""
    return tuple(name for name, row in rows.items() if row.cost in costs)


def output_axis(name: str, ndim: int) -> int:
    """The axis of an anchor's output channels: the last of a matrix product, else 1."""
    return ndim - 1 if row_of(name).cost == "product" else 1
