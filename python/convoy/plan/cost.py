"""What a direct convolution costs: an analytic model of cycles, of the busiest thread.

Rates are of one core with two vector FMA units, measured on AVX-512 (Cascade Lake, 2.42 GHz under
vector load, 2026-11-21); only their ratios decide anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from convoy.graph.ops import Conv2d
from convoy.plan.buffers import Map
from convoy.plan.tiles import FMA_UNITS, choose_tiling
from convoy.target import Target

EFFICIENCY = 0.92
"""Share of a full register tile's cycles that multiply: the rest is address arithmetic and stores."""
BYTES_PER_CYCLE = 5.0
"""From beyond L2, per core."""
EXPOSED = 0.5
"""Part of the time to read from beyond L2 that computing does not hide."""
WEIGHT_BYTES_PER_CYCLE = 4.0
"""From memory, per core: weights are read once an image, and there is no cache they all fit."""
WEIGHT_EXPOSED = 0.18
"""Part of that time that computing does not hide: ResNet-50 waits 0.8 ms for 100 MB (2026-11-21)."""
BARRIER_CYCLES = 1500.0


def direct_cycles(y: Map, products: float, weights: int, target: Target, threads: int) -> float:
    """Cycles of a direct convolution with ``weights`` floats, each value of y a sum of ``products``."""
    computing = choose_tiling(y.width, y.blocks, target, y.height).cycles * y.height * products / EFFICIENCY
    reading = WEIGHT_EXPOSED * weights * 4 / WEIGHT_BYTES_PER_CYCLE
    return (computing + reading) / threads


def depthwise_cycles(node: Conv2d, y: Map, kernel: Sequence[int], target: Target, threads: int) -> float:
    """Estimate a depthwise convolution by groups, in cycles of the busiest thread.

    They are those of its multiply-adds or, if that takes longer, of permuting pixels, one a cycle.
    """
    _, group, kh, kw = kernel
    permutations = node.stride[1] if node.dilation[1] == 1 else kw
    pixels = y.blocks * y.height * y.width
    return pixels * kh * group * max(kw / FMA_UNITS, permutations) / EFFICIENCY / threads
