"""Cut the pixels and output blocks of a convolution into register tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import pow

from convoy.graph.ops import Pair
from convoy.target import Target

FMA_UNITS = 2
FMA_LATENCY = 4.6
FMA_OVERLAP = 8
"""A tile waits where it has few sums, long before there are too few to hide the latency of 4: 12, 10, 9,
8 and 6 sums of AVX2 take 6.06, 5.25, 5.03, 4.80 and 4.46 cycles, all in L1 (2026-11-21).  A norm of this
order of FMAs and latency is within 0.17 of each."""
MOST_RUN = 6
"""Pixels of a run: where each of them lies takes a general register."""
LOAD_UNITS = 2
LEAST_SHARING = 16
"""Sums of a tile that keeps the weights of a kernel row in registers: twice what hides the latency."""
WEIGHT_CYCLES = 0.3
"""What a vector of weights adds to a tile because it comes from L2: among tiles that compute as fast the
one that reads fewer wins (AVX-512: 14x2 against 7x4, ResNet-50's 1x1 layers 111 -> 125 GFLOP/s, 3x3 129
-> 146; AVX2: 14 pixels as 5x2 and 4x2 against 4x3 and 3x3, stride 2, 1.46 -> 1.31 ms; 2026-11-21)."""


@dataclass(frozen=True)
class Rows:
    """How one output row is cut into register tiles: ``tiles[i]`` tiles of ``pixels[i]`` pixels."""

    pixels: Pair
    tiles: Pair


def cut_evenly(size: int, most: int) -> tuple[Pair, Pair]:
    """Sizes and counts of the fewest parts of at most ``most``, whose sizes differ by one at most."""
    count = -(-size // most)
    small, larger = divmod(size, count)
    if larger == 0:
        return (small, small), (count, 0)
    return (small + 1, small), (larger, count - larger)


def cut_row(width: int, most: int) -> Rows:
    """``width`` pixels as the fewest tiles of at most ``most``, as equal as can be."""
    return Rows(*cut_evenly(width, most))


def cut_blocks(run: int, most: int) -> tuple[int, ...]:
    """``run`` output blocks as the fewest chunks of at most ``most``, as equal as can be."""
    (large, small), (larger, smaller) = cut_evenly(run, most)
    return (large,) * larger + (small,) * smaller


def tile_cycles(pixels: int, blocks: int) -> float:
    """Cycles of one input channel of one tile: the slowest of FMAs, loads and latency."""
    issue = pixels * blocks / FMA_UNITS
    fma = pow(issue**FMA_OVERLAP + FMA_LATENCY**FMA_OVERLAP, 1 / FMA_OVERLAP)
    return max(fma, (pixels + blocks) / LOAD_UNITS)


@dataclass(frozen=True)
class Tiling:
    rows: Rows
    tile_rows: int
    """Rows of a tile; 2: the whole of two, and of the last one where their number is odd; 0: tiles are
    runs, which go on in the next row, and ``rows`` cuts the whole map."""
    blocks: int
    """Output blocks of a chunk, the most; ``cut_blocks`` makes some smaller by one."""
    cycles: float
    """Cycles of one row of all output blocks, for an input channel and a tap."""
    weights: float
    """Vectors of weights read for that."""


def cut_tiles(
    width: int, out_blocks: int, pixels: int, blocks: int, tile_rows: int = 1, height: int = 1
) -> Tiling:
    """Tiles of at most ``pixels`` x ``blocks``, or of two whole rows of ``pixels`` = ``width``, or runs."""
    rows = cut_row(width * height if tile_rows == 0 else width, pixels)
    chunks = cut_blocks(out_blocks, blocks)
    cycles = [
        count * sum(tile_cycles(max(tile_rows, 1) * p, b) for b in chunks)
        for p, count in zip(rows.pixels, rows.tiles, strict=True)
    ]
    covered = tile_rows or height  # rows of the map
    weights = sum(rows.tiles) * out_blocks / covered
    if tile_rows == 2:
        rows = Rows(rows.pixels, (0, 1))
    return Tiling(rows, tile_rows, chunks[0], sum(cycles) / covered, weights)


@cache
def rank_tilings(
    width: int, out_blocks: int, target: Target, height: int = 1, whole: bool = True
) -> tuple[Tiling, ...]:
    """Every tile that fits the registers, the one that computes a row and reads its weights soonest first.

    ``height`` > 1 lets a tile take two rows where they are short: it reads the weights once for both
    (7 px 81 -> 87 % of the peak, 2026-11-21).  Where the ``whole`` map is computed at once it also lets
    tiles be runs.  An x in planar layout has to leave it at 1.
    """
    kinds = (1,) if height == 1 else (1, 2, 0) if whole else (1, 2)
    found = [
        cut_tiles(width, out_blocks, pixels, blocks, tile_rows, height)
        for tile_rows in kinds
        for blocks in range(1, max(min(out_blocks, 4), 1) + 1)
        if cut_blocks(out_blocks, blocks)[0] == blocks
        for pixels in range(1, target.accumulators // blocks // max(tile_rows, 1) + 1)
        if _cuts(width, height, pixels, tile_rows)
    ]

    def cost(t: Tiling) -> tuple[float, int]:
        return t.cycles + WEIGHT_CYCLES * t.weights, -t.blocks

    return tuple(sorted(found, key=cost))


def _cuts(width: int, height: int, pixels: int, tile_rows: int) -> bool:
    """Whether the largest tiles of this kind can have ``pixels`` pixels in a row."""
    if tile_rows == 2:
        return pixels == width
    if tile_rows == 1:
        return max(cut_row(width, pixels).pixels) == pixels
    return pixels <= MOST_RUN and max(cut_row(width * height, pixels).pixels) == pixels


def choose_tiling(
    width: int, out_blocks: int, target: Target, height: int = 1, whole: bool = True
) -> Tiling:
    """The first that ``rank_tilings`` lists."""
    return rank_tilings(width, out_blocks, target, height, whole)[0]


def choose_planar_tiling(
    width: int, out_blocks: int, target: Target, kernel_w: int, stride_w: int
) -> Tiling:
    """``choose_tiling`` for a planar input.

    Where the weights of a kernel row fit the registers beside enough sums, and kernels overlap, a tile has
    room for both: it loads each pixel once, not once a tap.
    """
    blocks = min(out_blocks, 2)
    pixels = min(target.accumulators // blocks, (target.registers - 1) // blocks - kernel_w)
    if kernel_w <= stride_w or pixels * blocks < LEAST_SHARING:
        return choose_tiling(width, out_blocks, target)
    return cut_tiles(width, out_blocks, pixels, blocks)
