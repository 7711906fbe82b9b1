"""What a direct convolution costs, and what converting does: an analytic model of cycles."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.graph.dtypes import BYTES
from convoy.graph.ops import Conv2d
from convoy.plan.buffers import Map
from convoy.plan.tiles import choose_tiling
from convoy.target import Target


def direct_cycles(y: Map, products: float, weight_bytes: int, target: Target, threads: int) -> float:
    """Cycles of a direct convolution, of the busiest thread, each value of y a sum of ``products``."""
    computing = choose_tiling(y.width, y.blocks, target, y.height).cycles * y.height * products
    computing /= target.direct.efficiency
    reading = target.direct.weights_exposed * weight_bytes / target.memory_rate
    return (computing + reading) / threads


def depthwise_cycles(node: Conv2d, y: Map, kernel: Sequence[int], target: Target, threads: int) -> float:
    """Estimate a depthwise convolution by groups, in cycles of the busiest thread.

    They are those of its multiply-adds or, if that takes longer, of permuting pixels, one a cycle.
    """
    _, group, kh, kw = kernel
    permutations = node.stride[1] if node.dilation[1] == 1 else kw
    pixels = y.blocks * y.height * y.width
    cycles = pixels * kh * group * max(kw / target.fma_units, permutations) / target.direct.efficiency
    return cycles / threads


def conversion_cycles(dequantized: float, quantized: float, target: Target) -> float:
    """Cycles of one core to make floats of so many bytes, and bytes of so many floats."""
    moved = (BYTES["float32"] + BYTES["uint8"]) / target.cached_rate
    return moved * (dequantized * target.direct.dequantize + quantized * target.direct.quantize)
