"""Which steps compute all images of a batch before the next step begins.

Elsewhere a thread computes image after image: maps of one image fit a cache, those of eight do not.  Dense
layers are the other way round: their weights are the traffic, and a product with one row for each image
reads them once for all.  They stand at a network's end, where little is handed from step to step.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from convoy.plan.buffers import ARENA_ALIGNMENT, Array, Buffer, Map, Operand
from convoy.plan.step import Step


def find_batched(buffers: Sequence[Buffer], steps: Sequence[Step]) -> int:
    """The first step of those at the end that can take all images at once, or one after the other.

    It is a product of one row; ``len(steps)`` where there is none.
    """
    operands = [_operands(step) for step in steps]
    maps = {operand.buffer for found in operands for operand in found if isinstance(operand, Map)}
    first = len(steps)
    while first > 0 and all(_makes_rows(operand, buffers, maps) for operand in operands[first - 1]):
        first -= 1
    while first < len(steps) and not steps[first].takes_rows:
        first += 1
    return first


def give_images_their_own(buffers: Sequence[Buffer], batched: Sequence[Step]) -> list[Buffer]:
    """``buffers``, with what the batched steps read and write no longer shared by the images."""
    touched = {operand.buffer for step in batched for operand in _operands(step)}
    own = [i in touched and buffer.space == "arena" for i, buffer in enumerate(buffers)]
    return [replace(b, space="batch") if mine else b for b, mine in zip(buffers, own, strict=True)]


def _operands(step: Step) -> tuple[Operand, ...]:
    return (*step.reads, *step.writes)


def _makes_rows(operand: Operand, buffers: Sequence[Buffer], maps: Set[int]) -> bool:
    """Whether the images' tensors, one after the other, are rows: each fills its memory.

    As a map, where it is one too, the next one is as well aligned.
    """
    buffer = buffers[operand.buffer]
    if buffer.space == "weights":
        return True
    whole = isinstance(operand, Array) and operand.offset == 0 and operand.bytes == buffer.bytes
    return whole and (operand.buffer not in maps or buffer.bytes % ARENA_ALIGNMENT == 0)
