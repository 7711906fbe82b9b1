"""The schedules of a Winograd convolution: tile, groups of tiles, chunks, slabs, register tiles, split.

F(2x2, 3x3) makes 2.25 times fewer products than a direct convolution, F(4x4, 3x3) 4 times, F(6x6, 3x3)
5.06 times; the larger a tile, the more its transforms of weights and its rounding cost.  The last tiles are
as small as what is left of the map.  ``kernels/conv2d_winograd.h`` says what a schedule means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Literal

from convoy.graph.ops import Pair
from convoy.options import Accuracy
from convoy.plan.buffers import Map
from convoy.plan.cost import BARRIER_CYCLES, WEIGHT_BYTES_PER_CYCLE
from convoy.plan.tiles import cut_evenly, tile_cycles
from convoy.target import Target

Share = Literal["groups", "resident", "chunks", "streamed"]
"""What threads share.  resident: groups, and U is made once, whole, by all of them; streamed: chunks of one
block, and U is not stored (``kernels/conv2d_winograd_streamed.h``)."""

Out = Literal[2, 4, 6]
"""Pixels a side of a tile."""

OUTS: Mapping[Accuracy, tuple[Out, ...]] = {"direct": (), "fast": (4, 2), "fastest": (6, 4, 2)}
"""The tiles whose rounding a user accepts."""
FILLED = 0.8
"""Share of L2 that V, U and M of one thread may take together."""
SLAB_SHARE = 0.15
"""Share of L2 that each of the two slabs of U may take: 64 channels of F(4x4) with 2 MB of L2.  With 80 a
layer of 256 channels took 7 % longer, with 128 15 %, with 32 as long (2026-11-21)."""
PANEL_BYTES = 16 << 10
"""Bytes of one point of U that stay in L1 from one register tile to the next."""
SHARED_V_BYTES = 4 << 20
"""The most bytes of V where all threads read it: it lives in the last cache."""

# Cycles, measured as those of ``cost``.  A line is one point of one tile, or of one weight.
PRODUCT_EFFICIENCY = {1: 0.85, 2: 0.97, 3: 0.95, 4: 0.82}
"""Share of its peak that a register tile of so many blocks reaches, its operands in L2."""
CHANNEL_CYCLES = 1.5
"""What a register tile spends on a channel beside its products."""
CALL_CYCLES = 130.0
"""To begin and end a register tile."""
L2_LINE_CYCLES = 4.2
"""A register tile waits at least so long for each cache line of its operands."""
INPUT_LINE_CYCLES: Mapping[Out, float] = {2: 10.0, 4: 10.0, 6: 12.0}
OUTPUT_LINE_CYCLES: Mapping[Out, float] = {2: 7.0, 4: 7.0, 6: 10.0}
"""By tile; F(6x6)'s were 1.2 and 1.4 times F(4x4)'s on a machine with 2 MB of L2 (2026-11-21)."""
WEIGHT_LINE_CYCLES = 6.0
HIDDEN_WEIGHT_LINE_CYCLES = 1.0
"""Where U is made between register tiles: nobody waits for its stores."""
STORE_BUFFER = 96
STORE_LINE_CYCLES = 3.3
"""Vectors of U that may be on their way to L2 before a thread waits, and how long it waits for each more.
Granite Rapids has room for 112, 16 and more of them a register tile's."""
HIDDEN_READING = 0.4
"""Share of the time to read weights that those tiles do not hide; so F(4x4) takes 94 cycles a vector
(measured: 80; and 175 by itself, Granite Rapids, 2026-11-21)."""
STREAMED_TILES = 4
"""Winograd tiles of a register tile where U is streamed."""
STREAMED_BYTES = 24 << 10
"""Bytes of M that stay in L1 beside V and weights."""
STREAMED_CYCLES = 22.0
"""Cycles of such a tile, a row of points and an input channel: 15 of multiply-adds.  With those below, 512,
256 and 128 channels of 7x7 take 0.72, 0.75 and 0.83 of a direct convolution's cycles (measured: 0.66, 0.79,
0.79; Granite Rapids, two threads, 2026-11-22, all tiles whole)."""
STREAMED_ROWS_CYCLES = 20.0
"""To transform the weights of a channel and a block, before U."""
STREAMED_READING = 0.2
"""Share of the time to read those weights that the tiles do not hide."""
SCRATCH_BYTE_CYCLES = 1 / 32
"""Cycles a byte of V, U and M costs when a step first writes it: other steps have driven it from L2."""
SHARED_BYTE_CYCLES = 0.2
"""Cycles a byte of V costs that another thread made: it comes from the cache of that thread's core
(ResNet-50's 128 channels, two threads: 268 us with a common V, 243 with two, although each makes all of U;
2026-11-21)."""
SPILLED_BYTE_CYCLES = 0.02
"""What computing does not hide of moving a byte of V to or from beyond L2.  With 0.07, 1 MB of L2 meant
many groups, for each of which U was made anew: of 20 layers of 64 to 512 channels 5 were estimated
on the right side, with this 18, and the others lost up to 25 % (Zen 5, one and two threads, 2026-11-22)."""


@dataclass(frozen=True)
class Schedule:
    """How tiles and output blocks are cut: ``cv_winograd``, and the estimate."""

    out: Out
    share: Share
    groups: int
    pixels: int
    """The most Winograd tiles of a register tile."""
    room: int
    """Tiles of the largest group; of U streamed in whole register tiles."""
    blocks: int
    slab: int
    """Input blocks of a slab of U; 0: it is streamed."""
    cycles: float = 0.0
    """Estimated, of the busiest thread."""

    @property
    def points(self) -> int:
        return (self.out + 2) ** 2

    def sizes(self, x: Map, y: Map) -> tuple[int, int, int]:
        """Floats of V, U and M: of a thread, or of all where they share it."""
        lanes, slabs = x.lanes, -(-y.blocks // self.blocks) if self.share == "resident" else 2
        if self.share == "streamed":
            block = self.points * self.room * lanes
            return block * x.blocks, 0, block
        return (
            self.points * _point_size(x.blocks * self.room, lanes),
            self.points * _point_size(self.slab * lanes * self.blocks, lanes) * slabs,
            self.points * _point_size(self.blocks * self.room, lanes),
        )

    def last_tile(self, height: int, width: int) -> Pair:
        """Rows and columns of the last tile of so large an output: what is left, but at least 2.

        Streamed tiles are computed by fours, which have to be the map for smaller ones among them.
        """
        if self.share == "streamed" and any(-(-size // self.out) != 2 for size in (height, width)):
            return self.out, self.out
        return max((height - 1) % self.out + 1, 2), max((width - 1) % self.out + 1, 2)

    def extent(self, height: int, width: int) -> Pair:
        """Rows and columns that are computed of so large an output."""
        last = self.last_tile(height, width)
        return (height - 1) // self.out * self.out + last[0], (width - 1) // self.out * self.out + last[1]

    @property
    def variant(self) -> str:
        return f"F({self.out}x{self.out}, 3x3)"


def choose_schedule(x: Map, y: Map, out: Out, target: Target, threads: int) -> Schedule:
    """The schedule of F(out x out, 3x3) with the fewest estimated cycles; of equals, the widest tiles."""
    return min(schedules(x, y, out, target, threads), key=lambda s: (round(s.cycles), -s.pixels))


def count_tiles(y: Map, out: int) -> tuple[int, int]:
    """Rows and columns of tiles."""
    return -(-y.height // out), -(-y.width // out)


def count_register_tiles(s: Schedule, y: Map) -> Counter[int]:
    """How many register tiles of how many pixels multiply a slab of V with one of U, over all points.

    Where the last row or column of tiles is smaller, it has fewer points than the others.  Those tiles of a
    group that have a point are cut evenly into the fewest.
    """
    rows, columns = count_tiles(y, s.out)
    height, width = s.last_tile(y.height, y.width)
    low, narrow = height < s.out, width < s.out
    tiles, low_tiles, narrow_tiles = rows * columns, low * columns, narrow * (rows - low)
    # Ranges of tiles, in the order of conv2d_winograd_tiles.h, and how many points just they have.
    ranges = (
        (0, tiles, (height + 2) * (width + 2)),
        (narrow_tiles, tiles - (low and narrow), (height + 2) * (s.out - width)),
        (0, tiles - low_tiles, (s.out - height) * (width + 2)),
        (narrow_tiles, tiles - low_tiles, (s.out - height) * (s.out - width)),
    )
    found: Counter[int] = Counter()
    begin = 0
    for size in _cut(tiles, s.groups):
        for first, end, points in ranges:
            count = min(end, begin + size) - max(first, begin)
            if points and count > 0:
                (large, small), (larger, smaller) = cut_evenly(count, s.pixels)
                found[large] += points * larger
                found[small] += points * smaller
        begin += size
    return +found


def _point_size(vectors: int, lanes: int) -> int:
    """Floats between two points: ``cv_winograd_point``."""
    return (vectors | 1) * lanes


def schedules(x: Map, y: Map, out: Out, target: Target, threads: int) -> Iterator[Schedule]:
    """Schedules worth an estimate.

    Each way to share, each width of a chunk, and as many tiles a group as the caches take; and few tiles
    with U streamed.
    """
    rows, columns = count_tiles(y, out)
    tiles, block_bytes = rows * columns, (out + 2) ** 2 * x.lanes * 4
    room = -(-tiles // STREAMED_TILES) * STREAMED_TILES
    if out == 4 and room * block_bytes <= STREAMED_BYTES:
        streamed = Schedule(out, "streamed", 1, STREAMED_TILES, room, 1, 0)
        yield replace(streamed, cycles=_estimate_streamed(streamed, x, y, threads))
    # One block a tile loads as often as it multiplies: only where there is no second one.
    for blocks in range(min(2, y.blocks), min(4, y.blocks) + 1):
        widest = target.accumulators // blocks
        slab_bytes = block_bytes * x.lanes * blocks
        slab = max(1, min(x.blocks, int(target.l2_bytes * SLAB_SHARE) // slab_bytes))
        slab = -(-x.blocks // -(-x.blocks // slab))
        u_bytes = slab_bytes // blocks * x.blocks * y.blocks
        tile_bytes = block_bytes * (x.blocks + blocks)
        shares: dict[Share, tuple[int, float]] = {
            "groups": (slab, (target.l2_bytes * FILLED - 2 * slab * slab_bytes) / tile_bytes),
            "resident": (x.blocks, (target.l2_bytes * FILLED - u_bytes) / tile_bytes),
            "chunks": (slab, SHARED_V_BYTES / (block_bytes * x.blocks)),
        }
        for share, (width, most) in shares.items():
            if share == "resident" and most < 1:
                continue
            most = max(int(most), 1)
            fitting = range(widest, most + 1, widest) or (most,)
            # Where U is not made again for each group, smaller ones may fill their register tiles better.
            for limit in fitting if share == "resident" else fitting[-1:]:
                groups = min(-(-tiles // limit), tiles)
                if share != "chunks":
                    groups = min(-(-groups // threads) * threads, tiles)
                largest = -(-tiles // groups)
                schedule = Schedule(out, share, groups, min(widest, largest), largest, blocks, width)
                yield replace(schedule, cycles=estimate(schedule, x, y, target, threads))


def estimate(s: Schedule, x: Map, y: Map, target: Target, threads: int) -> float:
    """Cycles of the busiest thread."""
    rows, columns = count_tiles(y, s.out)
    tiles = rows * columns
    groups = _cut(tiles, s.groups)
    chunks = [min(s.blocks, y.blocks - b) for b in range(0, y.blocks, s.blocks)]
    slabs = -(-x.blocks // s.slab)
    busiest = _busiest(chunks if s.share == "chunks" else groups, threads)

    products = 0.0
    cuts = count_register_tiles(s, y)
    calls = cuts.total() / s.groups
    for blocks in set(chunks):
        stays = s.slab * x.lanes * blocks * x.lanes * 4 <= PANEL_BYTES
        for pixels, count in cuts.items():
            lines = (blocks / (calls / s.points if stays else 1) + pixels / x.lanes) * x.lanes / 16
            fma = tile_cycles(pixels, blocks) / PRODUCT_EFFICIENCY[blocks] + CHANNEL_CYCLES
            channel = max(fma, lines * L2_LINE_CYCLES)
            products += count * chunks.count(blocks) * (x.blocks * x.lanes * channel + slabs * CALL_CYCLES)
    points = _count_points(s, y)
    fill = INPUT_LINE_CYCLES[s.out] * points * x.blocks
    invert = OUTPUT_LINE_CYCLES[s.out] * points * y.blocks
    reading = 9 * x.lanes * 4 / WEIGHT_BYTES_PER_CYCLE
    seen = max(WEIGHT_LINE_CYCLES * s.points, reading)
    made = ceil(s.slab * x.lanes * s.blocks / calls)  # after a register tile
    waiting = max(0, made * s.points - STORE_BUFFER) * STORE_LINE_CYCLES / made
    hidden = HIDDEN_WEIGHT_LINE_CYCLES * s.points + HIDDEN_READING * reading + waiting
    # Of a thread's first slab of U nothing is hidden.
    parts = 1 if s.share == "resident" else max(1.0, len(chunks) * slabs * s.groups / threads)
    weights = (hidden + (seen - hidden) / parts) * x.blocks * x.lanes * y.blocks
    v, u, m = s.sizes(x, y)
    own = m + (v / threads if s.share == "chunks" else v) + (u / threads if s.share == "resident" else u)
    shared = (products + invert) * busiest + own * 4 * SCRATCH_BYTE_CYCLES
    if s.share == "resident":
        return shared + fill * busiest + weights / threads + BARRIER_CYCLES
    if s.share == "groups":
        return shared + fill * busiest + weights * -(-s.groups // threads)
    v_bytes = s.points * x.blocks * x.lanes * 4 * tiles
    # Written, which reads it too, by all; read by each for its chunks.
    traffic = v_bytes * (2 / threads + len(chunks) * busiest)
    spilled = traffic if v_bytes / s.groups > target.l2_bytes else 0.0
    moving = SPILLED_BYTE_CYCLES * spilled + SHARED_BYTE_CYCLES * v_bytes * (1 - 1 / threads)
    barriers = BARRIER_CYCLES * 2 * s.groups
    return shared + fill / threads + weights * s.groups * busiest + moving + barriers


def _estimate_streamed(s: Schedule, x: Map, y: Map, threads: int) -> float:
    """Cycles of the busiest thread."""
    rows, columns = count_tiles(y, s.out)
    tiles = rows * columns
    points = _count_points(s, y)
    share = points / (s.points * tiles)  # of the products of whole tiles
    channel = STREAMED_CYCLES * (s.out + 2) * s.room / STREAMED_TILES * share + STREAMED_ROWS_CYCLES
    channel += STREAMED_READING * 9 * x.lanes * 4 / WEIGHT_BYTES_PER_CYCLE
    fill = INPUT_LINE_CYCLES[s.out] * points * x.blocks
    invert = OUTPUT_LINE_CYCLES[s.out] * points
    v, _, m = s.sizes(x, y)
    moving = (v / threads + m) * 4 * SCRATCH_BYTE_CYCLES + SHARED_BYTE_CYCLES * v * 4 * (1 - 1 / threads)
    blocks = y.blocks * _busiest([1] * y.blocks, threads)
    return blocks * (x.blocks * x.lanes * channel + invert) + fill / threads + moving + BARRIER_CYCLES


def _count_points(s: Schedule, y: Map) -> int:
    """Points of all tiles together."""
    rows, columns = count_tiles(y, s.out)
    height, width = s.last_tile(y.height, y.width)
    return (rows * (s.out + 2) - (s.out - height)) * (columns * (s.out + 2) - (s.out - width))


def _cut(total: int, parts: int) -> list[int]:
    """Sizes of nearly equal parts: ``cv_share``."""
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def _busiest(pieces: Sequence[int], threads: int) -> float:
    """The part of all pieces that the busiest thread gets, when contiguous shares have equal counts."""
    bounds = [len(pieces) * i // threads for i in range(threads + 1)]
    return max(sum(pieces[a:b]) for a, b in pairwise(bounds)) / sum(pieces)
