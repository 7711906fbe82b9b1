"""Cut a convolution into register tiles, chunks of output blocks, and shares for threads."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from convoy.plan.steps import Chunk, Rows
from convoy.target import Target

FMA_UNITS = 2
FMA_LATENCY = 4
LOAD_UNITS = 2


def cut_row(width: int, most: int) -> Rows:
    """``width`` pixels as the fewest tiles of at most ``most``, whose sizes differ by one at most."""
    count = -(-width // most)
    small, larger = divmod(width, count)
    if larger == 0:
        return Rows((small, small), (count, 0))
    return Rows((small + 1, small), (larger, count - larger))


def tile_cycles(pixels: int, blocks: int) -> float:
    """Cycles of one input channel of one tile: the slowest of FMAs, loads and latency."""
    fma = max(pixels * blocks, FMA_UNITS * FMA_LATENCY) / FMA_UNITS
    return max(fma, (pixels + blocks) / LOAD_UNITS)


@dataclass(frozen=True)
class Tiling:
    rows: Rows
    blocks: int
    """Output blocks of a full chunk."""
    cycles: float
    """Of one row of all output blocks: an input channel, a tap."""


def cut_tiles(width: int, out_blocks: int, pixels: int, blocks: int) -> Tiling:
    """Tiles of at most ``pixels`` x ``blocks``."""
    rows = cut_row(width, pixels)
    full, tail = divmod(out_blocks, blocks)
    cycles = [
        count * (full * tile_cycles(p, blocks) + (tile_cycles(p, tail) if tail else 0.0))
        for p, count in zip(rows.pixels, rows.tiles, strict=True)
    ]
    return Tiling(rows, blocks, sum(cycles))


@cache
def rank_tilings(width: int, out_blocks: int, target: Target) -> tuple[Tiling, ...]:
    """Every tile that fits the registers, those that spend the fewest cycles on one row first."""
    found = [
        cut_tiles(width, out_blocks, pixels, blocks)
        for blocks in range(1, max(min(out_blocks, 4), 1) + 1)
        for pixels in range(1, target.accumulators // blocks + 1)
        if max(cut_row(width, pixels).pixels) == pixels
    ]
    # Among equals the widest: 14x2 reads half the weights of 7x4, and they come from L2
    # (ResNet-50's 1x1 layers 111 -> 125 GFLOP/s, 3x3 129 -> 146; 2026-11-21).
    return tuple(sorted(found, key=lambda t: (t.cycles, -max(t.rows.pixels), -t.blocks)))


def choose_tiling(width: int, out_blocks: int, target: Target) -> Tiling:
    """The tile that spends the fewest cycles on one row of all output blocks."""
    return rank_tilings(width, out_blocks, target)[0]


def group_blocks(out_channels: int, in_channels: int, groups: int, lanes: int, inner: int) -> int:
    """Output blocks that belong together: those of one group where groups are whole blocks, else all."""
    whole = out_channels // groups % lanes == 0 and in_channels // groups % inner == 0
    return out_channels // groups // lanes if whole else -(-out_channels // lanes)


def cut_chunks(
    out_channels: int, in_channels: int, groups: int, blocks: int, lanes: int, inner: int, taps: int,
    most_floats: int | None = None,
) -> tuple[Chunk, ...]:  # fmt: skip
    """Consecutive chunks of output blocks; each reads the input blocks its groups touch.

    Groups of whole blocks have chunks of their own.  Others share blocks: a chunk's panel has
    ``in_count · taps · inner · blocks · lanes`` weights, with zeros where an input
    channel of its range belongs to another group.  Where that is more than ``most_floats``, chunks
    are cut along the input too: then several in a row have the same output blocks.
    """
    out_blocks = -(-out_channels // lanes)
    in_blocks = -(-in_channels // inner)
    per_group_out, per_group_in = out_channels // groups, in_channels // groups
    run = group_blocks(out_channels, in_channels, groups, lanes, inner)
    chunks: list[Chunk] = []
    offset = 0
    for first in (f for begin in range(0, out_blocks, run) for f in range(begin, begin + run, blocks)):
        count = min(blocks, run - first % run)
        first_group = first * lanes // per_group_out
        last_group = (min((first + count) * lanes, out_channels) - 1) // per_group_out
        begin = first_group * per_group_in // inner
        end = min(-(-(last_group + 1) * per_group_in // inner), in_blocks)
        block_floats = taps * inner * count * lanes
        parts = (
            1 if most_floats is None else min(-(-(end - begin) * block_floats // most_floats), end - begin)
        )
        for part in range(max(parts, 1)):
            a = begin + (end - begin) * part // max(parts, 1)
            b = begin + (end - begin) * (part + 1) // max(parts, 1)
            chunks.append(Chunk(first, count, a, b - a, offset, part > 0, part < parts - 1))
            offset += (b - a) * block_floats
    return tuple(chunks)


def panel_size(chunks: tuple[Chunk, ...], taps: int, inner: int, lanes: int) -> int:
    """Floats of all panels."""
    last = chunks[-1]
    return last.weights + last.in_count * taps * inner * last.blocks * lanes


def share_imbalance(pieces: int, threads: int) -> float:
    """Work of the busiest thread over the mean, for ``pieces`` equal pieces of work."""
    return -(-pieces // threads) * threads / pieces
