"""The geometry of blocked maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from convoy.graph.dtypes import BYTES, DType
from convoy.graph.ops import Sides
from convoy.graph.sizes import is_open, largest
from convoy.plan.buffers import Map

LINE_BYTES = 64
"""Bytes of a cache line."""
NO_HALO: Sides = (0, 0, 0, 0)


def image_shape(shape: Sequence[int]) -> tuple[int, int, int] | None:
    """C, H, W of a tensor that can be a map: [1, C, H, W], or [1, C] as 1x1 pixels."""
    if len(shape) == 4 and shape[0] == 1:
        return shape[1], shape[2], shape[3]
    if len(shape) == 2 and shape[0] == 1:
        return shape[1], 1, 1
    return None


def make_map(
    buffer: int, channels: int, height: int, width: int, lanes: int, halo: Sides = NO_HALO,
    dtype: DType = "float32", zero: int = 0,
) -> Map:  # fmt: skip
    """A map at the start of its buffer.

    A plane is an odd number of cache lines: with a power of two, pixel (y, x) of every channel
    block would fall into the same set of the L1 cache.
    """
    top, left, bottom, right = halo
    row = (left + width + right) * lanes
    plane = (top + height + bottom) * row
    line = LINE_BYTES // BYTES[dtype]
    if lanes > 1 and (is_open((height, width)) or height * width > 1):
        plane = (-(-plane // line) | 1) * line
    first = top * row + left * lanes
    return Map(buffer, first, channels, height, width, lanes, plane, row, lanes, halo, dtype, zero)


def group_of(m: Map, groups: int, index: int) -> Map:
    """One of so many ranges of channels of a map, each of whole blocks."""
    channels = m.channels // groups
    return replace(m, offset=m.offset + index * channels // m.lanes * m.plane, channels=channels)


def map_size(m: Map) -> int:
    """Elements a buffer needs for the map and its halo; a tile may read a vector past the end."""
    return m.blocks * m.plane + LINE_BYTES // BYTES[m.dtype]


def widest(a: Sides, b: Sides) -> Sides:
    return largest(a[0], b[0]), largest(a[1], b[1]), largest(a[2], b[2]), largest(a[3], b[3])


Role = Literal["map", "channel", "pixel", "scalar"]


def operand_role(shape: Sequence[int], out: Sequence[int]) -> Role | None:
    """How an operand of a blocked chain meets a pixel of the output; None where it cannot."""
    c, h, w = ((1,) * (4 - len(shape)) + tuple(shape))[1:] if len(shape) <= 4 else (0, 0, 0)
    full = (c == out[1], h == out[2], w == out[3])
    if c == h == w == 1:
        return "map" if tuple(out[1:]) == (1, 1, 1) else "scalar"
    if full == (True, True, True):
        return "map"
    if full[0] and h == w == 1:
        return "channel"
    if c == 1 and full[1:] == (True, True):
        return "pixel"
    return None
