"""What a convolution costs: an analytic model of cycles, of the busiest thread.

Rates are of one core with two vector FMA units, measured on AVX-512 (Cascade Lake, 2026-11-21);
only their ratios decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from convoy.plan.steps import Map
from convoy.plan.tiles import FMA_UNITS, tile_cycles
from convoy.target import Target

EFFICIENCY = 0.92
"""Of a full register tile's cycles: the rest is address arithmetic and stores."""
TRANSFORM_CYCLES = 130.0
"""To transform one Winograd tile of one block, in or out."""
BYTES_PER_CYCLE = 5.0
"""From beyond L2, per core."""
EXPOSED = 0.5
"""Part of the time to read from beyond L2 that computing does not hide."""
BARRIER_CYCLES = 1500.0
WINOGRAD_POINTS = 36


def busiest_share(pieces: Sequence[int], threads: int) -> float:
    """The largest sum of pieces one thread gets when contiguous shares have equal counts."""
    count = len(pieces)
    bounds = [count * i // threads for i in range(threads + 1)]
    return max(sum(pieces[a:b]) for a, b in pairwise(bounds))


def direct_cycles(x: Map, y: Map, kernel_area: int, threads: int) -> float:
    """Of a direct convolution of one group."""
    multiplications = y.height * y.width * y.blocks * x.channels * kernel_area
    weight_bytes = x.channels * y.blocks * y.lanes * kernel_area * 4
    return max(multiplications / FMA_UNITS / EFFICIENCY, weight_bytes / BYTES_PER_CYCLE) / threads


def winograd_cycles(
    x: Map, y: Map, tiles: Sequence[int], pixels: int, chunks: Sequence[int], split_chunks: bool,
    target: Target, threads: int,
) -> float:  # fmt: skip
    """Of a Winograd convolution F(4x4, 3x3).

    Parameters
    ----------
    tiles : 4x4 output tiles of each group
    pixels : of a register tile
    chunks : output blocks of each chunk
    split_chunks : threads share chunks and read U once in all; else they share groups, and each
        group reads all of U
    """
    work = chunks if split_chunks else tiles
    busiest = busiest_share(work, threads) / sum(work)
    products = 0.0
    for blocks in set(chunks):
        a_group = [-(-count // pixels) * tile_cycles(pixels, blocks) for count in tiles]
        products += WINOGRAD_POINTS * x.blocks * x.lanes * sum(a_group) * list(chunks).count(blocks)
    transforms = TRANSFORM_CYCLES * sum(tiles) * (x.blocks / threads + y.blocks * busiest)
    u_bytes = WINOGRAD_POINTS * x.blocks * x.lanes * y.blocks * y.lanes * 4
    reads = u_bytes * (len(tiles) * busiest if not split_chunks else len(tiles) / threads)
    if u_bytes < target.l2_bytes // 2:
        reads /= len(tiles)
    if split_chunks:  # V is made by all threads and read by each of them for every chunk
        v_bytes = WINOGRAD_POINTS * x.blocks * x.lanes * sum(tiles) * 4
        reads += v_bytes * (1 if v_bytes < target.l2_bytes // 2 else 1 + len(chunks) / threads)
    barriers = BARRIER_CYCLES * 2 * len(tiles) if split_chunks else 0.0
    waiting = EXPOSED * reads / BYTES_PER_CYCLE
    return products * busiest / EFFICIENCY + transforms + waiting + barriers
