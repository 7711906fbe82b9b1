"""Steps that one thread computes alone, while the others wait: there is less to share than a barrier takes.

Threads meet before such steps, and the last to come computes them before it lets the others go.  So any
number of them that follow one another costs one meeting.  That is why they are gathered.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from convoy.graph.sizes import is_open
from convoy.plan.buffers import Buffer, Operand
from convoy.plan.step import Step
from convoy.target import Target

_MORE = 4
"""So many times what moving memory takes, a step that computes much of each element may take."""

_REACH = 256
"""Steps that one may move past, so that thousands that read nothing of one another are soon in order."""


def find_alone(steps: Sequence[Step], cycles: Sequence[float], target: Target, threads: int) -> list[bool]:
    """Which steps are computed by one thread: of ``threads``, of which the busiest takes ``cycles`` each.

    Where sizes are open, those only that say so: an estimate for small sizes may be wrong for large ones.
    """

    def is_little(step: Step, taken: float) -> bool:
        if any(is_open(operand.size) for operand in (*step.writes, *step.reads)):
            return False
        if step.cycles is None:  # it takes no less than to move its operands
            taken = _MORE * (taken - target.step)
        return taken * (threads - 1) < target.barrier

    shared = threads > 1
    return [
        step.unshared or (shared and is_little(step, taken))
        for step, taken in zip(steps, cycles, strict=True)
    ]


def gather(steps: Sequence[Step], alone: Sequence[bool], buffers: Sequence[Buffer]) -> list[int]:
    """The numbers of the steps in an order in which those of one thread stand together.

    Each of them moves up to the first others that it may follow, past steps that neither make what it reads
    nor read what it makes.
    """
    order: list[int] = []
    touched = [_touched(step, buffers) for step in steps]
    for i, (reads, writes) in enumerate(touched):
        place = len(order)
        if alone[i]:
            first, least = place, max(place - _REACH, 0)
            while first > least and not _meet(touched[order[first - 1]], (reads, writes)):
                first -= 1
            behind = range(max(first, 1), place + 1)
            place = next((k for k in behind if _ends_a_run(order, k, alone)), place)
        order.insert(place, i)
    return order


def _ends_a_run(order: Sequence[int], k: int, alone: Sequence[bool]) -> bool:
    """Whether a step of one thread stands in front of place k, and none at it."""
    return alone[order[k - 1]] and (k == len(order) or not alone[order[k]])


_Touched = tuple[frozenset[Hashable], frozenset[Hashable]]


def _touched(step: Step, buffers: Sequence[Buffer]) -> _Touched:
    """What a step reads and writes: arguments by their numbers, and buffers."""

    def place(operand: Operand) -> Hashable:
        buffer = buffers[operand.buffer]
        return (buffer.space, buffer.index) if buffer.space in ("input", "output") else operand.buffer

    return frozenset(map(place, step.reads)), frozenset(map(place, step.writes))


def _meet(one: _Touched, other: _Touched) -> bool:
    """Whether either writes what the other touches."""
    return not (one[1].isdisjoint(other[0] | other[1]) and other[1].isdisjoint(one[0]))
