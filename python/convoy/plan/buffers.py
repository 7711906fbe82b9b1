"""Memory of a plan, and the operands of its steps: dense arrays and feature maps.

A buffer's size and place are in bytes; offsets and strides of an operand are in elements of its type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from convoy.graph.dtypes import BYTES, DType, cell_elements
from convoy.graph.ops import Sides

Space = Literal["input", "output", "arena", "batch", "thread", "weights"]
"""arena: of the image at hand; batch: each image's own, one after the other; thread: scratch that each
thread has for itself, for one step."""
WEIGHTS_ALIGNMENT = 64
ARENA_ALIGNMENT = 64
"""Bytes."""


@dataclass(frozen=True)
class Buffer:
    """Memory of one or several tensors: ``index`` is the number of the argument, or an offset in bytes."""

    space: Space
    bytes: int
    index: int = 0


@dataclass(frozen=True)
class Array:
    """A dense row-major tensor at ``offset`` in buffer number ``buffer``."""

    buffer: int
    offset: int
    shape: tuple[int, ...]
    dtype: DType = "float32"

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * BYTES[self.dtype]


@dataclass(frozen=True)
class Map:
    """A feature map (``csrc/kernels/map.h``); ``lanes`` is 1 for a planar one, and 4 for one of bytes.

    A pixel of a block is ``lanes`` elements, which are ``lanes / k`` cells of k elements each
    (``graph/dtypes.py``).
    """

    buffer: int
    offset: int
    """Where element (0, 0, 0) lies."""
    channels: int
    height: int
    width: int
    lanes: int
    plane: int
    row: int
    step: int
    halo: Sides = (0, 0, 0, 0)
    dtype: DType = "float32"
    zero: int = 0
    """What its halo holds: of bytes the zero point."""

    @property
    def cells(self) -> int:
        """Cells of a pixel of a block."""
        return max(1, self.lanes // cell_elements(self.dtype))

    @property
    def blocks(self) -> int:
        return -(-self.channels // self.lanes)

    @property
    def size(self) -> int:
        """Elements, without the halo; those that fill the last block count."""
        return self.blocks * self.lanes * self.height * self.width

    @property
    def bytes(self) -> int:
        """Bytes, without the halo."""
        return self.size * BYTES[self.dtype]

    @property
    def flat(self) -> bool:
        """Its rows follow one another without a gap."""
        return self.step == self.lanes and self.row == self.width * self.step

    def as_row(self) -> Map:
        """The same pixels as one row."""
        assert self.flat
        return Map(
            self.buffer, self.offset, self.channels, 1, self.height * self.width,
            self.lanes, self.plane, self.height * self.row, self.step, dtype=self.dtype, zero=self.zero,
        )  # fmt: skip


Operand = Array | Map


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense tensor, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))
