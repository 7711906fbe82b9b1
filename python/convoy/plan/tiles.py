"""Cut the pixels and output blocks of a convolution into register tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import pow

from convoy.graph.dtypes import BYTES
from convoy.graph.ops import Pair
from convoy.graph.sizes import is_open
from convoy.target import Target

FMA_OVERLAP = 8
"""The order of the norm of a tile's multiply-adds and their latency: it waits where it has few sums, long
before there are too few to hide the latency.  This order is within 0.17 cycles of what was measured."""
MOST_RUN = 6
"""Pixels of a run: where each of them lies takes a general register."""
PART = 0.41
"""What it takes to put the bytes of a pixel apart, in products of a block's weights: tiles of 12 sums of
4, 3 and 2 blocks multiply 79.9, 78.1 and 73.2 G a second, all in L1 (Zen 3, 2026-11-25)."""
OPEN_WIDTHS = (1, 2, 4, 5, 8)
"""Quarters of the likely width of maps for which tiles are chosen, where it is known at the call."""
LEAST_SHARING = 16
"""Sums of a tile that keeps the weights of a kernel row in registers: twice what hides the latency
of four cycles of two units, as measured; a vector of AVX2 never has so many."""
MOST_SPAN = 64
"""Columns under such a tile (``CV_CONV2D_MAX_SPAN``): the compiler unrolls no longer loop."""


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


def cut_any_row(width: int, most: int) -> Rows:
    """``cut_row``; of a width that only a call knows the most pixels of a tile, and no tiles."""
    return Rows((most, most), (0, 0)) if is_open(width) else cut_row(width, most)


def cut_blocks(run: int, most: int) -> tuple[int, ...]:
    """``run`` output blocks as the fewest chunks of at most ``most``, as equal as can be."""
    (large, small), (larger, smaller) = cut_evenly(run, most)
    return (large,) * larger + (small,) * smaller


def tile_cycles(pixels: int, blocks: int, target: Target, parts: int = 1) -> float:
    """Cycles of one input channel of one tile: the slowest of FMAs, loads and latency.

    Where a cell is multiplied in several ``parts`` (``CV_DOT_PARTS``) their products are the slowest, and
    the more blocks there are the less it takes to make the parts.
    """
    if parts > 1:
        return pixels * (blocks + PART) / target.fma_units
    issue, latency = pixels * blocks / target.fma_units, target.fma_latency + target.direct.latency
    fma = pow(issue**FMA_OVERLAP + latency**FMA_OVERLAP, 1 / FMA_OVERLAP)
    return max(fma, (pixels + blocks) / target.load_units)


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
    width: int, out_blocks: int, pixels: int, blocks: int, target: Target, tile_rows: int = 1,
    height: int = 1, parts: int = 1,
) -> Tiling:  # fmt: skip
    """Tiles of at most ``pixels`` x ``blocks``, or of two whole rows of ``pixels`` = ``width``, or runs."""
    rows = cut_row(width * height if tile_rows == 0 else width, pixels)
    chunks = cut_blocks(out_blocks, blocks)
    cycles = [
        count * sum(tile_cycles(max(tile_rows, 1) * p, b, target, parts) for b in chunks)
        for p, count in zip(rows.pixels, rows.tiles, strict=True)
    ]
    covered = tile_rows or height  # rows of the map
    weights = sum(rows.tiles) * out_blocks / covered
    if tile_rows == 2:
        rows = Rows(rows.pixels, (0, 1))
    return Tiling(rows, tile_rows, chunks[0], sum(cycles) / covered, weights)


@cache
def rank_tilings(
    width: int, out_blocks: int, target: Target, height: int = 1, whole: bool = True, parts: int = 1,
    products: int = 0,
) -> tuple[Tiling, ...]:  # fmt: skip
    """Every tile that fits the registers, the one that computes a row and reads its weights soonest first.

    ``height`` > 1 lets a tile take two rows where they are short: it reads the weights once for both
    (7 px 81 -> 87 % of the peak, 2026-11-21).  Where the ``whole`` map is computed at once it also lets
    tiles be runs.  An x in planar layout has to leave it at 1.
    """
    kinds = (1,) if height == 1 else (1, 2, 0) if whole else (1, 2)
    found = [
        cut_tiles(width, out_blocks, pixels, blocks, target, tile_rows, height, parts)
        for tile_rows in kinds
        for blocks in range(1, max(min(out_blocks, 4), 1) + 1)
        if cut_blocks(out_blocks, blocks)[0] == blocks
        for pixels in range(1, target.accumulators // blocks // max(tile_rows, 1) + 1)
        if _cuts(width, height, pixels, tile_rows)
    ]

    def cost(t: Tiling) -> tuple[float, int]:
        runs = sum(t.rows.tiles) * -(-out_blocks // t.blocks) / height if t.tile_rows == 0 else 0.0
        beside = target.direct.run * runs / products if products else 0.0
        return t.cycles + _reading(t, width, out_blocks, products, target, parts) + beside, -t.blocks

    return tuple(sorted(found, key=cost))


def _reading(t: Tiling, width: int, out_blocks: int, products: int, target: Target, parts: int) -> float:
    """What loading adds to the cycles of a row: of weights from L2, or of all operands from L1."""
    costs = target.direct
    if parts > 1 and products and costs.load:
        return costs.load * t.weights  # they are operands of each pixel's products: how often tells little
    panel = products * t.blocks * target.lanes * BYTES["float32"]
    if not 0 < panel <= target.l1_bytes * target.shares.near_panel or not costs.load:
        return costs.weight * t.weights
    pixels = width * -(-out_blocks // t.blocks)
    most = max(t.rows.pixels)
    spilled = most * t.blocks + t.blocks + 1 > target.registers  # a weight of each pixel's, not of a tile's
    again = pixels * (most - 1) / most if spilled else 0.0
    return costs.load * (pixels + t.weights + again)


def _cuts(width: int, height: int, pixels: int, tile_rows: int) -> bool:
    """Whether the largest tiles of this kind can have ``pixels`` pixels in a row."""
    if tile_rows == 2:
        return pixels == width
    if tile_rows == 1:
        return max(cut_row(width, pixels).pixels) == pixels
    return pixels <= MOST_RUN and max(cut_row(width * height, pixels).pixels) == pixels


def choose_tiling(
    width: int, out_blocks: int, target: Target, height: int = 1, whole: bool = True, parts: int = 1,
    products: int = 0,
) -> Tiling:  # fmt: skip
    """The first that ``rank_tilings`` lists."""
    return rank_tilings(width, out_blocks, target, height, whole, parts, products)[0]


def choose_open_tiling(width: int, out_blocks: int, target: Target, parts: int = 1) -> Tiling:
    """Tiles of one row for maps whose width is known at the call, and is likely to be about ``width``."""
    widths = [max(1, width * n // 4) for n in OPEN_WIDTHS]

    def cost(size: Pair) -> tuple[float, int]:
        cuts = [cut_tiles(w, out_blocks, *size, target, parts=parts) for w in widths]
        total = sum(
            (t.cycles + target.direct.weight * t.weights) / w for t, w in zip(cuts, widths, strict=True)
        )
        return total, -size[1]

    sizes = [
        (pixels, blocks)
        for blocks in range(1, max(min(out_blocks, 4), 1) + 1)
        if cut_blocks(out_blocks, blocks)[0] == blocks
        for pixels in range(1, target.accumulators // blocks + 1)
    ]
    pixels, blocks = min(sizes, key=cost)
    return cut_tiles(pixels, out_blocks, pixels, blocks, target, parts=parts)


def choose_planar_tiling(
    width: int, out_blocks: int, target: Target, kernel_w: int, stride_w: int, parts: int = 1
) -> Tiling:
    """``choose_tiling`` for a planar input.

    Where the weights of a kernel row fit the registers beside enough sums, and kernels overlap, a tile has
    room for both: it loads each pixel once, not once a tap.
    """
    blocks = min(out_blocks, 2)
    under = (MOST_SPAN - kernel_w) // stride_w + 1
    pixels = min(target.accumulators // blocks, (target.registers - 1) // blocks - kernel_w, under)
    if parts > 1 or kernel_w <= stride_w or pixels * blocks < LEAST_SHARING:
        return choose_tiling(width, out_blocks, target, parts=parts)
    return cut_tiles(width, out_blocks, pixels, blocks, target)
