"""How axis 0 of each op is read: as images, of which each is computed by itself, or as it is.

A region reads axis 0 of all its tensors alike.  So the ops of a function are shared out among as many
cuts as there are readings: the convolutions of eight images, and an attention that mixes them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Literal

from tvm import relay

from convoy.offload import axis_zero
from convoy.ops.attributes import elements
from convoy.ops.table import row_of
from convoy.relay.dataflow import Dataflow, dims, op_name, operands
from convoy.relay.reader import READER, results

Reading = int | Literal["?"]
"""How many images lie along axis 0, "?" where only a run knows; with ``FLAT`` axis 0 is read as it is."""

FLAT = 1


def count_images(calls: Sequence[relay.Call]) -> list[int]:
    """How many images the ops on images compute at once, of each number one; none where no such op is."""
    found = (dims(results(call)[0]) for call in calls if row_of(op_name(call)).images)
    return list(dict.fromkeys(shape[0] for shape in found if shape and isinstance(shape[0], int)))


def readings(call: relay.Call, numbers: Collection[int] = ()) -> set[Reading]:
    """How axis 0 of a call may be read; empty if in no way.

    Parameters
    ----------
    numbers : Collection[int]
        Of images, as ``count_images`` finds them.
    """
    row, read = row_of(op_name(call)), READER.reads(call)
    shapes = [t.dims or () for t in (*READER.results(call), *read) if not t.constant]
    if any(shape[:1] == ("?",) for shape in shapes):
        if row.cost == "in place" and elements(shapes[0][1:]) != elements(shapes[1][1:]):
            return set()  # axis 0 would hold more or fewer than the images
        asked: list[Reading] = ["?"]
    else:
        asked = [number for number in numbers if number != FLAT]
    apart = not moves_axis_zero(call) and axis_zero.is_per_image(row, read, len(shapes[0]))
    found = {n for n in asked if apart and all(shape[:1] == (n,) for shape in shapes)}
    flat = "?" not in asked and (not row.images or shapes[0][0] == FLAT)
    return found | ({FLAT} if flat else set())


def moves_axis_zero(call: relay.Call) -> bool:
    """Does this op move, cut or mix what lies along axis 0?"""
    return axis_zero.moves_axis(call, READER)


def choose_readings(flow: Dataflow, taken: Iterable[relay.Call]) -> dict[relay.Call, Reading]:
    """One reading of each call that is taken.

    An op that may be read in several ways goes with what it reads that was computed last: an addition
    joins the kernel of the convolution before it.  One that reads no such thing goes with its readers.
    """
    numbers = count_images(flow.calls)
    allowed = {call: readings(call, numbers) for call in taken}
    made: dict[relay.Expr, relay.Call | None] = {}
    chosen: dict[relay.Call, Reading] = {}
    place = {call: i for i, call in enumerate(flow.calls)}
    for node in flow.nodes:
        before = [call for operand in operands(node) if (call := made.get(operand)) in chosen]
        last = max(before, key=place.__getitem__, default=None)
        if node not in allowed:
            made[node] = None if op_name(node) else last  # a tuple's is that of its fields
            continue
        made[node] = node
        if last is not None or len(allowed[node]) == 1:
            chosen[node] = _one_of(allowed[node], None if last is None else chosen[last])
    asked: dict[relay.Expr, Reading] = {}
    for node in reversed(flow.nodes):
        if node in allowed and node not in chosen:
            chosen[node] = _one_of(allowed[node], asked.get(node))
        wanted = chosen[node] if node in allowed else None if op_name(node) else asked.get(node)
        if wanted is not None:
            asked |= {operand: wanted for operand in operands(node) if operand not in asked}
    return chosen


def _one_of(allowed: set[Reading], wanted: Reading | None) -> Reading:
    if wanted in allowed:
        return wanted
    return FLAT if FLAT in allowed else next(iter(allowed))
