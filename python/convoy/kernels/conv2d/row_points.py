"""Winograd's algorithm along the rows of a planar input: where it pays, its points, its matrices.

F(4, 3) and F(4, 4) make 6 and 7 products for 4 outputs where a direct convolution makes 12 and 16.  With a
stride each of its phases has a part of the kernel's columns: 7 columns of stride 2 are 4 and 3, and 4
outputs take 14 products instead of 28.  The kernel: ``kernels/conv2d_winograd_rows.h``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from convoy.graph.dtypes import BYTES
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.sizes import is_open
from convoy.plan.tiles import Rows
from convoy.target import Target

OUT = 4
"""Outputs of a tile."""
ROOM = 8
"""Floats of a tile and a phase in V."""
PAIRS = {3: (2 / 3, 3 / 2, 0.0), 4: (1 / 3, 3 / 4, 2.0)}
"""By the columns of a phase, p of the points +-p; 0 is one point, and the last one is infinity.  Those for
4 have the least error of 660 sets of simple fractions (2026-11-22)."""
MOST_SPAN = 32
"""CV_WINOGRAD_ROWS_MAX_SPAN: inputs of a tile."""
BLOCKS = 2
"""Blocks of output channels in a register tile."""
LARGEST_WEIGHT = 1e18
"""Larger ones may overflow where V is as large as it may be."""


@dataclass(frozen=True)
class RowPoints:
    """Points along the rows of a convolution, of whose kernel ``taps`` columns are a phase's."""

    stride: int
    taps: int

    @property
    def variant(self) -> str:
        return f"winograd F({OUT}, {self.taps}) in rows"

    @property
    def pairs(self) -> tuple[float, float, float]:
        return PAIRS[self.taps]

    @property
    def points(self) -> int:
        return self.taps + OUT - 1

    @property
    def step(self) -> int:
        """Floats of V for a pixel of the output."""
        return self.stride * ROOM // OUT

    def transform(self, lanes: int) -> NDArray[np.float64]:
        """B^T by input: [stride · points][cell]; a cell has the points of phases that fill a vector."""
        cell = max(lanes, ROOM)
        table = np.zeros((self.stride * self.points, cell))
        for k in range(self.stride * self.points):
            first = k % self.stride * ROOM % cell
            table[k, first : first + self.points] = _matrices(self.taps)[0][:, k // self.stride]
        return table

    def weights(self, w: NDArray[np.float64]) -> NDArray[np.float64]:
        """U = G w of [..., kernel columns]: [..., phase, point]."""
        padded = np.zeros((*w.shape[:-1], self.taps * self.stride))
        padded[..., : w.shape[-1]] = w
        phases = padded.reshape(*w.shape[:-1], self.taps, self.stride).swapaxes(-1, -2)
        found: NDArray[np.float64] = phases @ _matrices(self.taps)[1].T
        return found


def find_row_points(node: Conv2d, graph: Graph, target: Target) -> RowPoints | None:
    """Points for a convolution of few channels, if its products become fewer; None if they do not."""
    out_channels, in_channels, rows, columns = graph.shape(node.inputs[1])
    stride = node.stride[1]
    found = RowPoints(stride, -(-columns // stride))
    panel = in_channels * rows * stride * found.points * BLOCKS * target.lanes
    plain = node.groups == 1 and node.dilation == (1, 1)
    kernel_fits = (
        found.taps in PAIRS
        and stride * found.points <= MOST_SPAN
        and panel * BYTES[graph.dtype(node.inputs[1])] <= target.shares.row_point_bytes
    )
    vectors_fit = stride * ROOM % target.lanes == 0 and out_channels > (BLOCKS - 1) * target.lanes
    weight = graph.constants.get(node.inputs[1])
    if not (plain and kernel_fits and vectors_fit) or weight is None:
        return None
    return found if np.abs(weight).max() < LARGEST_WEIGHT else None


def row_cycles(node: Conv2d, graph: Graph, found: RowPoints, target: Target, threads: int) -> float:
    """Estimated, of all of it."""
    out_channels, in_channels, kernel_rows, _ = graph.shape(node.inputs[1])
    _, _, height, width = graph.shape(node.output)
    x_rows = (height - 1) * node.stride[0] + kernel_rows
    tiles, blocks = -(-width // OUT), -(-out_channels // target.lanes)
    products = height * tiles * blocks * in_channels * kernel_rows * found.stride * found.points
    together = register_tiles(target)
    loads = (together + BLOCKS) / (together * BLOCKS)
    computing = products * max(loads / target.load_units, 1 / target.fma_units)
    computing /= target.row_points.efficiency
    return (computing + x_rows * in_channels * tiles * target.row_points.tile) / threads


def register_tiles(target: Target) -> int:
    """Tiles of a register tile, of 2 blocks and 7 points."""
    return 2 if target.registers > 16 else 1


def cut_points(width: int, target: Target) -> Rows:
    """``width`` pixels as register tiles, the last of what is left; of an open width, none yet."""
    pixels = register_tiles(target) * OUT
    if is_open(width):
        return Rows((pixels, pixels), (0, 0))
    return Rows((pixels, width % pixels or pixels), (width // pixels, int(width % pixels > 0)))


@cache
def _matrices(taps: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """B^T [points, points] and G [points, taps] of F(4, taps)."""
    p = [sign * pair for pair in PAIRS[taps] for sign in (1, -1) if pair or sign > 0]
    bt, g = np.zeros((len(p) + 1,) * 2), np.zeros((len(p) + 1, taps))
    for i, point in enumerate(p):
        others = [other for other in p if other != point]
        bt[i, :-1] = np.poly(others)[::-1] / np.prod([point - other for other in others])
        g[i] = [point**k for k in range(taps)]
    bt[-1] = np.poly(p)[::-1]
    g[-1, -1] = 1
    return bt, g
