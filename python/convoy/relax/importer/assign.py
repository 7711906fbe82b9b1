"""Assignments to rows one after the other: a ScatterND whose indices are a part of a Range.

So PyTorch's newer exporter writes ``x[:, a:b] = y``, with the axis brought to the front and back again.  Of
constant indices it is an idiom (``idioms/updates.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, tirx

from convoy.relax.dataflow import number, op_name
from convoy.relax.importer.agree import cast
from convoy.relax.importer.idioms.definitions import definition
from convoy.relax.importer.sizes.algebra import is_clipped
from convoy.relax.importer.slice import as_bounds


def assign_rows(bb: Any, inputs: Sequence[Any], attrs: dict[str, Any]) -> Any:
    """The rows before, the new ones and those behind; None of places that are no such run of rows.

    Parameters
    ----------
    inputs : Sequence[Any]
        Data, places and updates of the ScatterND.
    """
    data, places, updates = inputs[:3]
    algebra = bb.algebra
    sizes, given, (count, *depth) = (algebra.sizes(x) or [None] for x in (data, updates, places))
    known = None not in sizes and len(given) == len(sizes)
    if attrs.get("reduction", b"none") != b"none" or not known or depth != [1]:
        return None
    first = _first(bb, places)
    if first is None or not algebra.at_least(first, 0):
        return None
    rows, end = sizes[0], algebra.add(first, count)
    if not algebra.at_least(algebra.subtract(rows, end), 0) or any(map(is_clipped, (first, count, rows))):
        return None
    made = [count, *sizes[1:]]
    if not all(map(algebra.same, given, made)):
        updates = cast(bb, updates, made)
    turn, data, updates = _before_turn(bb, data, updates)
    axis = turn[0] if turn else 0
    sides = ((0, first), (end, rows))
    before, behind = ([] if algebra.same(*s) else [bb.emit(_cut(data, axis, *s))] for s in sides)
    parts = [*before, updates, *behind]
    whole = relax.op.concat(parts, axis) if len(parts) > 1 else updates
    return relax.op.permute_dims(bb.emit(whole), turn) if turn else whole


def _first(bb: Any, places: Any) -> Any:
    """The first of places that are a column of numbers one apart; None of others."""
    column = _call(bb, places, "expand_dims")
    if column is None:
        return None
    cut = _call(bb, column.args[0], "strided_slice")
    if cut is not None and [number(step) for step in cut.args[4]] != [1]:
        return None
    spaced = _call(bb, column.args[0] if cut is None else cut.args[0], "arange")
    if spaced is None or number(spaced.args[2]) != 1:
        return None
    start = spaced.args[0]
    return _number(start) if cut is None else bb.algebra.add(_number(start), _number(cut.args[2][0]))


def _number(expr: Any) -> Any:
    return int(expr.value) if isinstance(expr, tirx.IntImm) else expr


def _before_turn(bb: Any, *tensors: Any) -> tuple[list[int], Any, Any]:
    """The order in which both have their axes after a transpose, and what they were before it."""
    calls = [_call(bb, tensor, "permute_dims") for tensor in tensors]
    if any(call is None or call.attrs.axes is None for call in calls):
        return ([], *tensors)
    order, other = ([int(axis) for axis in call.attrs.axes] for call in calls)
    return (order, calls[0].args[0], calls[1].args[0]) if order == other else ([], *tensors)


def _cut(x: Any, axis: int, first: Any, end: Any) -> Any:
    bounds = as_bounds([first]), as_bounds([end])
    return relax.op.strided_slice(x, [axis], *bounds, [1], assume_inbound=True)


def _call(bb: Any, expr: Any, op: str) -> Any:
    """The call of that op that a tensor is; None if it is another's."""
    made = definition(expr, bb.lookup_binding)
    return made if op_name(made) == op else None
