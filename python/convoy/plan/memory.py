"""Place buffers in the arena by lifetime, and barriers by what steps share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from convoy.graph.dtypes import BYTES
from convoy.graph.sizes import always_before, hint, is_open, largest, open_size
from convoy.plan.buffers import ARENA_ALIGNMENT, WEIGHTS_ALIGNMENT, Array, Buffer, Operand, Space
from convoy.plan.step import Step

PAGE = 4096
"""Bytes.  The arena and each thread's scratch fill whole pages: a thread that reads to the end of its own
has the hardware fetch what follows in the page, and takes it from the thread that writes there (Winograd's
streamed 256 channels of 7x7, two threads, AVX2: 290 us, with pages 230; 2026-11-22)."""


def _align(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def place_buffers(
    buffers: Sequence[Buffer], steps: Sequence[Step]
) -> tuple[list[Buffer], dict[Space, int]]:
    """Offsets for every buffer that is no argument, and the bytes of each space.

    Greedy by size: the largest buffer first, each at the lowest offset that is free for its whole
    lifetime.  Source: Pisarchyk and Lee, "Efficient memory management for deep neural net
    inference", 2020.
    """
    lived = lifetimes(steps)
    placed = list(buffers)
    taken: list[tuple[int, int, int]] = []  # (buffer, begin, end)
    arena = [i for i, b in enumerate(buffers) if b.space == "arena" and i in lived]
    for i in sorted(arena, key=lambda i: (-buffers[i].bytes, i)):
        size = _align(buffers[i].bytes, ARENA_ALIGNMENT)
        offset = 0
        for j, begin, end in sorted(taken, key=lambda t: t[1]):
            if _overlap(lived[i], lived[j]) and begin < offset + size and offset < end:
                offset = end
        taken.append((i, offset, offset + size))
        placed[i] = replace(buffers[i], index=offset)
    sizes: dict[Space, int] = {"arena": max((end for _, _, end in taken), default=0)}
    in_a_row: tuple[tuple[Space, int], ...] = (("weights", WEIGHTS_ALIGNMENT), ("batch", ARENA_ALIGNMENT))
    for space, alignment in in_a_row:
        end = 0
        for i, b in enumerate(buffers):
            if b.space == space:
                placed[i] = replace(b, index=end)
                end += _align(b.bytes, alignment)
        sizes[space] = end
    sizes["thread"] = 0
    for step in steps:
        end = 0
        for operand in step.scratch:
            if buffers[operand.buffer].space == "thread":
                placed[operand.buffer] = replace(buffers[operand.buffer], index=end)
                end += _align(operand.bytes, ARENA_ALIGNMENT)
        sizes["thread"] = largest(sizes["thread"], end)
    for space in ("arena", "batch", "thread"):
        sizes[space] = _align(sizes[space], PAGE)
    return placed, sizes


@dataclass(frozen=True)
class Slot:
    """The place of a buffer in the arena, where sizes are known at the call: computed there, in order."""

    bytes: int
    behind: tuple[int, ...]
    """The slots at whose ends, or later, it begins."""


def place_open_buffers(
    buffers: Sequence[Buffer], steps: Sequence[Step]
) -> tuple[list[Buffer], dict[Space, int], tuple[Slot, ...]]:
    """As ``place_buffers``, where sizes are known at the call: the arena's offsets are symbols.

    Of two buffers that live at one time, the one that lies lower at likely sizes does so at all sizes.
    """
    placed, sizes = place_buffers([_likely_in_arena(b) for b in buffers], steps)
    lives = lifetimes(steps)
    arena = [i for i, b in enumerate(buffers) if b.space == "arena" and i in lives]
    slots: list[Slot] = []
    lower: list[int] = []
    below: list[set[int]] = []  # of each slot, all that lie below it
    for i in sorted(arena, key=lambda i: (placed[i].index, i)):
        found = {k for k, j in enumerate(lower) if _overlap(lives[i], lives[j])}
        behind = found - {k for f in found for k in below[f]}
        slots.append(Slot(_align(buffers[i].bytes, ARENA_ALIGNMENT), tuple(sorted(behind))))
        below.append(found | {k for f in found for k in below[f]})
        placed[i] = replace(buffers[i], index=open_size(f"at[{len(lower)}]", placed[i].index, 0))
        lower.append(i)
    sizes["arena"] = open_size("arena_bytes", sizes["arena"], 0)
    return placed, sizes, tuple(slots)


def _likely_in_arena(buffer: Buffer) -> Buffer:
    return hint(buffer) if buffer.space == "arena" else buffer


def _overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def lifetimes(steps: Sequence[Step]) -> dict[int, tuple[int, int]]:
    """First and last step that touches each buffer."""
    found: dict[int, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        for operand in (*step.writes, *step.reads):
            first, _ = found.get(operand.buffer, (i, i))
            found[operand.buffer] = (first, i)
    return found


Extent = tuple[str, int, int]
"""Space, begin and end; for an argument of the region, its number."""
Located = tuple[Extent, int]
"""Where an operand lies, and the number of its buffer."""


def place_barriers(
    buffers: Sequence[Buffer], steps: Sequence[Step], alone: Sequence[bool], batched: int = 0
) -> list[bool]:
    """Barriers where a step touches what one since the last barrier wrote, or writes what one read.

    Before a step of ``alone`` it holds all threads but one until that and those that follow are computed;
    elsewhere such steps are the first thread's, and in order without one.  One more stands where the steps
    from ``batched`` on begin, which compute all images.
    """
    barriers: list[bool] = []
    touched: list[_Touched] = []
    lives = lifetimes(steps)
    held = False
    for i, (step, is_alone) in enumerate(zip(steps, alone, strict=True)):
        held = held and is_alone and i != batched
        here = _Touched(
            [_locate(o, buffers) for o in step.writes if buffers[o.buffer].space != "thread"],
            [_locate(o, buffers) for o in step.reads],
            is_alone,
        )
        needed = i == batched > 0 or any(
            _touch(here.writes + here.reads, before.writes, lives)
            or _touch(here.writes, before.reads, lives)
            for before in touched
            if not (here.alone and before.alone)
        )
        if needed:
            touched, held = [], is_alone
        if not held:  # else all threads meet behind it
            touched.append(here)
        barriers.append(needed)
    return barriers


class _Touched(NamedTuple):
    """What a step writes and reads."""

    writes: list[Located]
    reads: list[Located]
    alone: bool


def extent(operand: Operand, buffers: Sequence[Buffer]) -> Extent:
    """Where an operand lies, its halo included."""
    buffer = buffers[operand.buffer]
    if buffer.space not in ("arena", "batch", "weights"):
        return (buffer.space, buffer.index, buffer.index + 1)
    size = BYTES[operand.dtype]
    begin, length = operand.offset, operand.size
    if not isinstance(operand, Array):
        top, left = operand.halo[:2]
        begin, length = begin - top * operand.row - left * operand.step, operand.blocks * operand.plane
    return (buffer.space, buffer.index + begin * size, buffer.index + (begin + length) * size)


def _locate(operand: Operand, buffers: Sequence[Buffer]) -> Located:
    return extent(operand, buffers), operand.buffer


def _touch(a: Sequence[Located], b: Sequence[Located], lives: Mapping[int, tuple[int, int]]) -> bool:
    return any(_meet(one, other, lives) for one in a for other in b)


def _meet(a: Located, b: Located, lives: Mapping[int, tuple[int, int]]) -> bool:
    """Can they have a byte in common, at any size?"""
    ((space, begin, end), buffer), ((other_space, other_begin, other_end), other) = a, b
    if space != other_space or always_before(end, other_begin) or always_before(other_end, begin):
        return False
    # of buffers whose places are computed at the call, those that live at one time lie apart
    return buffer == other or not is_open((begin, other_begin)) or not _overlap(lives[buffer], lives[other])
