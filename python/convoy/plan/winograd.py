"""The schedules of a Winograd convolution F(4x4, 3x3): groups of tiles, chunks, register tiles, split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy.plan.cost import winograd_cycles
from convoy.plan.steps import Map
from convoy.target import Target

OUT = 4
POINTS = 36
V_SHARE = 0.4
"""Of L2, that V of one group may take where each thread has its own."""
SHARED_V_BYTES = 4 << 20
"""Of V, where all threads read it: it lives in the last cache."""


@dataclass(frozen=True)
class Schedule:
    """How tiles and output blocks are cut, and the cycles it is estimated to take."""

    cycles: float
    groups: int
    tiles_per_group: int
    pixels: int
    blocks: int
    split_chunks: bool


def choose_schedule(x: Map, y: Map, target: Target, threads: int) -> Schedule:
    """The schedule with the fewest estimated cycles; among equals, the widest register tiles."""
    return min(_schedules(x, y, target, threads), key=lambda s: (round(s.cycles), -s.pixels))


def _schedules(x: Map, y: Map, target: Target, threads: int) -> Iterator[Schedule]:
    tiles = -(-y.height // OUT) * -(-y.width // OUT)
    v_bytes = POINTS * x.blocks * x.lanes * 4
    for split_chunks in (False, True):
        room = SHARED_V_BYTES if split_chunks else int(target.l2_bytes * V_SHARE)
        needed = -(-tiles // max(room // v_bytes, 1))
        groups = needed if split_chunks else min(-(-needed // threads) * threads, tiles)
        counts = [tiles * (i + 1) // groups - tiles * i // groups for i in range(groups)]
        largest = max(counts)
        # One block a tile loads as often as it multiplies: only where there is no second one.
        for blocks in range(min(2, y.blocks), min(4, y.blocks) + 1):
            register_tiles = -(-largest // (target.accumulators // blocks))
            pixels = -(-largest // register_tiles)
            chunks = [min(blocks, y.blocks - b) for b in range(0, y.blocks, blocks)]
            cycles = winograd_cycles(x, y, counts, pixels, chunks, split_chunks, target, threads)
            yield Schedule(cycles, groups, largest, pixels, blocks, split_chunks)
