"""The schedules of a Winograd convolution: tile, portions of tiles, chunks, slabs, register tiles, split.

F(2x2, 3x3) makes 2.25 times fewer products than a direct convolution, F(4x4, 3x3) 4 times, F(6x6, 3x3)
5.06 times; the larger a tile, the more its transforms of weights and its rounding cost.  The last tiles are
as small as what is left of the map.  A dilated convolution has phases, each with tiles of its own.
``kernels/conv2d_winograd.h`` says what a schedule means.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf, prod
from typing import Literal

from convoy.graph.dtypes import BYTES
from convoy.graph.ops import Pair
from convoy.options import Accuracy
from convoy.plan.buffers import Map
from convoy.plan.maps import make_map
from convoy.plan.tiles import cut_evenly, tile_cycles
from convoy.target import Target

Share = Literal["portions", "resident", "chunks", "streamed"]
"""What threads share.  resident: portions, and U is made once, whole, by all of them; streamed: chunks of
one block, and U is not stored (``kernels/conv2d_winograd_streamed.h``)."""

Out = Literal[2, 4, 6]
"""Pixels a side of a tile."""

OUTS: Mapping[Accuracy, tuple[Out, ...]] = {"direct": (), "fast": (4, 2), "fastest": (6, 4, 2)}
"""The tiles whose rounding a user accepts."""
VALUE = BYTES["float32"]
"""The bytes of a value of M, and of V and U that are not rounded, whatever type x and w have."""
ROUNDED_OUT = 4
"""The largest tile with V and U of bfloat16: of larger ones rounding shows too much."""
OPEN_OUT = 4
"""The largest tile where the size of a map is known at the call: larger ones lose on small maps, and take
as long again to compile in each form that a last tile may have."""
OPEN_ROOM = 4
"""How many times the likely tiles there is room for in memory, where they are known at the call."""
LEAST_GAIN = 1.05
"""Estimated, of F(6x6, 3x3) over smaller tiles, and of those over the direct convolution: each rounds more.
Where less was expected, less or nothing was measured (2026-11-21): how far estimates go, on any machine."""
STREAMED_TILES = 4
"""Winograd tiles of a register tile where U is streamed."""


@dataclass(frozen=True)
class Schedule:
    """How tiles and output blocks are cut: ``cv_winograd``, and the estimate."""

    out: Out
    share: Share
    portions: int
    pixels: int
    """The most Winograd tiles of a register tile."""
    room: int
    """Tiles of the largest portion; of U streamed in whole register tiles."""
    blocks: int
    slab: int
    """Input blocks of a slab of U; 0: it is streamed."""
    dilation: Pair = (1, 1)
    cycles: float = 0.0
    """Estimated, of the busiest thread."""
    most: int = 0
    """Tiles of a portion for which caches have room."""
    rounds: bool = False
    """Weights, V and U are of bfloat16."""
    exact: bool = False
    """V and U are of int16, two channels a cell, weights of bytes, M of int32; of a map ``in_cells``."""
    alone: bool = False
    """It is of one of several groups, which threads take in turns, each alone."""
    rows: int = 0
    """Rows of points of a slab of U: two, which share work, so that it has more input blocks; 0: all."""

    @property
    def phases(self) -> int:
        return prod(self.dilation)

    @property
    def points(self) -> int:
        return (self.out + 2) ** 2

    @property
    def slab_points(self) -> int:
        """How many points a slab of U has."""
        return (self.rows or self.out + 2) * (self.out + 2)

    @property
    def value(self) -> int:
        """Bytes of a value of V or U."""
        return BYTES["bfloat16"] if self.rounds else VALUE

    def sizes(self, x: Map, y: Map) -> tuple[int, int, int]:
        """Floats of V, U and M: of a thread, or of all where they share it."""
        cells = x.lanes * self.value // VALUE
        lanes, slabs = x.lanes, -(-y.blocks // self.blocks) if self.share == "resident" else 2
        if self.share == "streamed":
            block = self.points * self.room * lanes
            return block * x.blocks, 0, block
        return (
            self.points * _point_size(-(-x.blocks * self.room * cells // lanes), lanes),
            self.slab_points * _point_size(self.slab * cells * self.blocks, lanes) * slabs,
            self.points * _point_size(self.blocks * self.room, lanes),
        )

    def last_tile(self, height: int, width: int) -> Pair:
        """Rows and columns of the last tile of so large an output: what is left of a phase, but at least 2.

        Streamed tiles are computed by fours, which have to be the map for smaller ones among them.
        """
        tiles = count_tiles((height, width), self.out, self.dilation)
        if self.share == "streamed" and (self.phases > 1 or tiles != (2, 2)):
            return self.out, self.out
        rows, columns = _phase((height, width), self.dilation)
        return max((rows - 1) % self.out + 1, 2), max((columns - 1) % self.out + 1, 2)

    def extent(self, height: int, width: int) -> Pair:
        """Rows and columns that are computed of so large an output."""
        rows, columns = count_tiles((height, width), self.out, self.dilation)
        last = self.last_tile(height, width)
        return (
            ((rows - 1) * self.out + last[0]) * self.dilation[0],
            ((columns - 1) * self.out + last[1]) * self.dilation[1],
        )

    @property
    def variant(self) -> str:
        return f"F({self.out}x{self.out}, 3x3){' bf16' * self.rounds}{' int16' * self.exact}"


def in_cells(x: Map) -> Map:
    """A map of bytes as one of cells of two channels."""
    return make_map(0, -(-x.channels // 2), x.height, x.width, x.lanes)


def choose_schedule(
    x: Map, y: Map, out: Out, target: Target, threads: int, dilation: Pair = (1, 1), exact: bool = False
) -> Schedule:
    """The schedule of F(out x out, 3x3) with the fewest estimated cycles; of equals, the widest tiles.

    ``exact``: in integers, of a map ``in_cells``.
    """
    found = schedules(x, y, out, target, threads, dilation, exact)
    return min(found, key=lambda s: (round(s.cycles), -s.pixels))


def choose_open_schedule(
    x: Map, y: Map, out: Out, target: Target, threads: int, exact: bool = False
) -> Schedule:
    """The same for maps whose sizes are known at the call, and likely to be these.

    Portions are counted at the call, and there is room for as many tiles as caches have: of V that all
    threads share, for some times as many as are likely.
    """
    found = [s for s in schedules(x, y, out, target, threads, exact=exact) if s.share != "streamed"]
    best = min(found, key=lambda s: (round(s.cycles), -s.pixels))
    most = min(best.most, OPEN_ROOM * best.room) if best.share == "chunks" else best.most
    return replace(best, room=most, pixels=min(target.accumulators // best.blocks, most))


def streamed_cycles(s: Schedule, x: Map, y: Map, target: Target, threads: int) -> float:
    """Cycles of four tiles with U streamed, in the memory and from the panels of an open schedule.

    Infinitely many where these do not fit.
    """
    if s.out != 4 or s.share != "chunks" or s.rounds or s.exact or s.room < STREAMED_TILES:
        return inf
    streamed = Schedule(s.out, "streamed", 1, STREAMED_TILES, STREAMED_TILES, 1, 0)
    return _estimate_streamed(streamed, x, y, target, threads)


def count_tiles(size: Pair, out: int, dilation: Pair = (1, 1)) -> Pair:
    """Rows and columns of the tiles of a phase, of an output of so many rows and columns."""
    height, width = _phase(size, dilation)
    return -(-height // out), -(-width // out)


def _phase(size: Pair, dilation: Pair) -> Pair:
    """Rows and columns of the largest phase."""
    return -(-size[0] // dilation[0]), -(-size[1] // dilation[1])


def count_register_tiles(s: Schedule, y: Map) -> Counter[int]:
    """How many register tiles of how many pixels multiply a slab of V with one of U, over all points.

    Where the last row or column of tiles is smaller, it has fewer points than the others.  Those tiles of a
    portion that have a point are cut evenly into the fewest.
    """
    rows, columns = count_tiles((y.height, y.width), s.out, s.dilation)
    height, width = s.last_tile(y.height, y.width)
    low, narrow = height < s.out, width < s.out
    tiles, corners = s.phases * rows * columns, s.phases * (low and narrow)
    low_tiles, narrow_tiles = s.phases * low * columns, s.phases * narrow * (rows - low)
    # Ranges of tiles, in the order of conv2d_winograd_tiles.h, and how many points just they have.
    ranges = (
        (0, tiles, (height + 2) * (width + 2)),
        (narrow_tiles, tiles - corners, (height + 2) * (s.out - width)),
        (0, tiles - low_tiles, (s.out - height) * (width + 2)),
        (narrow_tiles, tiles - low_tiles, (s.out - height) * (s.out - width)),
    )
    found: Counter[int] = Counter()
    begin = 0
    for size in _cut(tiles, s.portions):
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


def schedules(
    x: Map, y: Map, out: Out, target: Target, threads: int, dilation: Pair = (1, 1), exact: bool = False
) -> Iterator[Schedule]:
    """Schedules worth an estimate.

    Each way to share, each width of a chunk, and as many tiles a portion as the caches take; and few tiles
    with U streamed.
    """
    tiles = prod(count_tiles((y.height, y.width), out, dilation)) * prod(dilation)
    rounds = target.bfloat16 and out <= ROUNDED_OUT and not exact
    block_bytes = (out + 2) ** 2 * x.lanes * VALUE
    read_bytes = block_bytes // (2 if rounds else 1)  # of V and U
    room = -(-tiles // STREAMED_TILES) * STREAMED_TILES
    if out == 4 and not rounds and not exact and room * block_bytes <= target.shares.streamed_bytes:
        streamed = Schedule(out, "streamed", 1, STREAMED_TILES, room, 1, 0, dilation)
        yield replace(streamed, cycles=_estimate_streamed(streamed, x, y, target, threads))
    # One block a tile loads as often as it multiplies: only where there is no second one.
    for blocks in range(min(2, y.blocks), min(4, y.blocks) + 1):
        widest = target.accumulators // blocks
        slab_bytes = read_bytes * x.lanes * blocks
        u_bytes = slab_bytes // blocks * x.blocks * y.blocks
        tile_bytes = read_bytes * x.blocks + block_bytes * blocks
        fitting_bytes = target.l2_bytes * target.shares.winograd
        shares: list[tuple[Share, int, int, float]] = [
            ("resident", x.blocks, 0, (fitting_bytes - u_bytes) / tile_bytes)
        ]
        for rows in target.shares.slab_rows if out >= 4 and not (rounds or exact) else (0,):
            part_bytes = slab_bytes * (rows or out + 2) // (out + 2)
            for slab in _slabs(x.blocks, part_bytes, target):
                shares += [
                    ("portions", slab, rows, (fitting_bytes - 2 * slab * part_bytes) / tile_bytes),
                    ("chunks", slab, rows, target.shares.last_bytes / (read_bytes * x.blocks)),
                ]
        for share, width, rows, most in shares:
            if share == "resident" and most < 1:
                continue
            most = max(int(most), 1)
            fitting = range(widest, most + 1, widest) or (most,)
            # Where U is not made again for each portion, smaller ones may fill their register tiles better.
            for limit in fitting if share == "resident" else fitting[-1:]:
                portions = min(-(-tiles // limit), tiles)
                if share != "chunks":
                    portions = min(-(-portions // threads) * threads, tiles)
                largest = -(-tiles // portions)
                pixels = min(widest, largest)
                schedule = Schedule(
                    out,
                    share,
                    portions,
                    pixels,
                    largest,
                    blocks,
                    width,
                    dilation,
                    most=limit,
                    rounds=rounds,
                    exact=exact,
                    rows=rows,
                )
                yield replace(schedule, cycles=estimate(schedule, x, y, target, threads))


def _slabs(in_blocks: int, block_bytes: int, target: Target) -> list[int]:
    """Input blocks of a slab of U, of so many bytes each: even parts, for each share of L2 to try."""
    rooms = [max(1, int(target.l2_bytes * share) // block_bytes) for share in target.shares.slabs]
    return sorted({-(-in_blocks // -(-in_blocks // min(in_blocks, room))) for room in rooms})


def estimate(s: Schedule, x: Map, y: Map, target: Target, threads: int) -> float:
    """Cycles of the busiest thread."""
    costs = target.winograd
    tiles = _count_all(s, y)
    portions = _cut(tiles, s.portions)
    chunks = [min(s.blocks, y.blocks - b) for b in range(0, y.blocks, s.blocks)]
    slabs = -(-x.blocks // s.slab)
    busiest = _busiest(chunks if s.share == "chunks" else portions, threads)

    products, cells = 0.0, x.lanes * s.value // VALUE
    cuts = count_register_tiles(s, y)
    calls = cuts.total() / s.portions
    for blocks in set(chunks):
        stays = s.slab * x.lanes * blocks * x.lanes * s.value <= target.shares.point_bytes
        for pixels, count in cuts.items():
            lines = (blocks / (calls / s.points if stays else 1) + pixels / x.lanes) * x.lanes / 16
            fma = tile_cycles(pixels, blocks, target) / costs.efficiency[blocks - 1] + costs.channel
            fma *= costs.shorts if s.exact else 1
            channel = max(fma, lines * costs.l2_line)
            products += count * chunks.count(blocks) * (x.blocks * cells * channel + slabs * costs.call)
    points = _count_points(s, y)
    fill = costs.input_line[s.out // 2 - 1] * points * x.blocks
    invert = costs.output_line[s.out // 2 - 1] * points * y.blocks
    reading = 9 * x.lanes * (2 if s.exact else s.value) / target.memory_rate
    seen = max(costs.weight_line * s.points, reading)
    made = ceil(s.slab * x.lanes * s.blocks * s.points / s.slab_points / calls)  # after a register tile
    waiting = max(0, made * s.slab_points - target.store_buffer) * target.store_line / made
    waiting *= s.points / s.slab_points
    hidden = costs.hidden_weight_line * s.points + costs.hidden_reading * reading + waiting
    # Of a thread's first slab of U nothing is hidden.
    parts = 1 if s.share == "resident" else max(1.0, len(chunks) * slabs * s.portions / threads)
    again = costs.weight_again * (s.points / s.slab_points - 1)
    weights = (hidden + (seen - hidden) / parts + again) * x.blocks * x.lanes * y.blocks
    v, u, m = s.sizes(x, y)
    own = m + (v / threads if s.share == "chunks" else v) + (u / threads if s.share == "resident" else u)
    shared = (products + invert) * busiest + own * VALUE * costs.scratch_byte
    if s.share == "resident":
        return shared + fill * busiest + weights / threads + target.barrier
    if s.share == "portions":
        return shared + fill * busiest + weights * -(-s.portions // threads)
    v_bytes = s.points * x.blocks * x.lanes * s.value * tiles
    # Written, which reads it too, by all; read by each for its chunks.
    traffic = v_bytes * (2 / threads + len(chunks) * busiest)
    spilled = traffic if v_bytes / s.portions > target.l2_bytes else 0.0
    moving = costs.spilled_byte * spilled + costs.shared_byte * v_bytes * (1 - 1 / threads)
    barriers = target.barrier * 2 * s.portions
    return shared + fill / threads + weights * s.portions * busiest + moving + barriers


def _estimate_streamed(s: Schedule, x: Map, y: Map, target: Target, threads: int) -> float:
    """Cycles of the busiest thread."""
    costs = target.winograd
    tiles = _count_all(s, y)
    points = _count_points(s, y)
    share = points / (s.points * tiles)  # of the products of whole tiles
    row = costs.streamed_products * 2 / target.fma_units + costs.streamed_rest
    channel = row * (s.out + 2) * s.room / STREAMED_TILES * share + costs.streamed_weights
    channel += costs.streamed_reading * 9 * x.lanes * BYTES[x.dtype] / target.memory_rate
    fill = costs.input_line[s.out // 2 - 1] * points * x.blocks
    invert = costs.output_line[s.out // 2 - 1] * points
    v, _, m = s.sizes(x, y)
    moving = (v / threads + m) * VALUE * costs.scratch_byte
    moving += costs.shared_byte * v * VALUE * (1 - 1 / threads)
    blocks = y.blocks * _busiest([1] * y.blocks, threads)
    return blocks * (x.blocks * x.lanes * channel + invert) + fill / threads + moving + target.barrier


def _count_all(s: Schedule, y: Map) -> int:
    """Tiles of all phases."""
    return s.phases * prod(count_tiles((y.height, y.width), s.out, s.dilation))


def _count_points(s: Schedule, y: Map) -> int:
    """Points of all tiles together."""
    rows, columns = count_tiles((y.height, y.width), s.out, s.dilation)
    height, width = s.last_tile(y.height, y.width)
    of_phase = (rows * (s.out + 2) - (s.out - height)) * (columns * (s.out + 2) - (s.out - width))
    return s.phases * of_phase


def _cut(total: int, parts: int) -> list[int]:
    """Sizes of nearly equal parts: ``cv_share``."""
    return [total * (i + 1) // parts - total * i // parts for i in range(parts)]


def _busiest(pieces: Sequence[int], threads: int) -> float:
    """The part of all pieces that the busiest thread gets, when contiguous shares have equal counts."""
    bounds = [len(pieces) * i // threads for i in range(threads + 1)]
    return max(sum(pieces[a:b]) for a, b in pairwise(bounds)) / sum(pieces)
