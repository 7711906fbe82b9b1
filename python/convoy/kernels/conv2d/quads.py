"""How a kernel row of a depthwise convolution of bytes meets four pixels at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

from convoy.graph.dtypes import cell_elements
from convoy.graph.ops import Conv2d
from convoy.plan.buffers import Map
from convoy.target import InstructionSet, Target

CELL = cell_elements("uint8")
"""Bytes of a cell, and pixels of a quad."""
DEPTHWISE_KERNEL_WIDTH = 11
"""CV_DEPTHWISE_MAX_KERNEL_W: a tile holds a row of the kernel in registers."""


@dataclass(frozen=True)
class Quads:
    """How a kernel row of bytes meets four pixels at a time."""

    width: int
    """The kernel row is so many pixels, with the zeros that dilate it."""
    stride: int
    dilation: int

    @property
    def spacing(self) -> int:
        return CELL if self.width > CELL - 1 else CELL // 2

    @property
    def lag_step(self) -> int:
        return gcd(self.stride, self.spacing)

    @property
    def lags(self) -> int:
        return self.spacing // self.lag_step

    @property
    def count(self) -> int:
        """The most quads of an output."""
        return -(-(self.spacing - self.lag_step + self.width) // CELL)


def find_quads(node: Conv2d, kernel: Sequence[int]) -> Quads | None:
    """How it is computed of bytes; None where its taps are too far apart."""
    width = (kernel[-1] - 1) * node.dilation[1] + 1
    return Quads(width, node.stride[1], node.dilation[1]) if width <= DEPTHWISE_KERNEL_WIDTH else None


APART: Mapping[InstructionSet, float] = {"avx512": 0.25, "avx2": 0.41, "portable": 1.6}
"""Time of a depthwise convolution of bytes over that of floats, in ``bytes_apart``: medians of 15 layers of
MobileNetV2 and EfficientNet-B0 are 0.7 and 4.5 with AVX-512 and portable (Zen 5, 2026-11-25, by quads, as
all were then), 1.12 with AVX2 (Zen 3, 2026-11-26)."""
DOTS = 0.5
"""The same with an instruction that multiplies bytes: 0.2 to 0.7."""


def own_filters_cycles(y: Map, kernel: Sequence[int], target: Target, threads: int) -> tuple[float, float]:
    """Estimates of a convolution with a filter for each channel: of bytes, and of floats."""
    floats = y.blocks * y.height * y.width * prod(kernel[2:]) * target.direct.depthwise_tap / threads
    return floats * (DOTS if target.dots else APART[target.isa] * target.direct.bytes_apart), floats


def depthwise_bytes_cycles(
    y: Map, kernel: Sequence[int], quads: Quads, target: Target, threads: int
) -> float:
    """Estimate a depthwise convolution of bytes by groups, in cycles of the busiest thread."""
    _, group, kh, _ = kernel
    products, moved = float(quads.count), quads.stride / quads.spacing
    if not target.dots:  # by pairs of rows
        products, moved = quads.width / CELL * target.direct.bytes_apart, quads.stride / 2
    products /= target.fma_units
    pixels = y.blocks * y.height * y.width
    return pixels * kh * group * (products + moved) / target.direct.efficiency / threads
