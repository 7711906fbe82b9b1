"""Chunks of output blocks, and the panels of weights that they read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convoy.graph.dtypes import cell_elements, round_bfloat16
from convoy.plan.recipes import Array, Constants, Recipe, split_cells
from convoy.plan.tiles import Tiling, cut_blocks, rank_tilings, tile_cycles
from convoy.target import Target


@dataclass(frozen=True)
class Chunk:
    """``cv_conv2d_chunk``: consecutive output blocks with one range of input blocks."""

    out_block: int
    blocks: int
    in_begin: int
    in_count: int
    weights: int
    adds: bool = False
    """To the sums the chunk before it left in y; the first one starts from the bias."""
    partial: bool = False
    """The next chunk adds to its sums."""


@dataclass(frozen=True)
class Tap:
    """Which taps of the kernel a convolution uses along one axis: begin, begin + step, … (count)."""

    begin: int
    step: int
    count: int


@dataclass(frozen=True)
class PackConv(Recipe):
    """[O, C/groups, KH, KW] → panels, chunk after chunk, in the order in which tiles read them.

    [in_count][kh][kw][inner / cell][blocks][lanes][cell]; float32 in cells of two are rounded to bfloat16,
    cells of four are ``split_cells`` where they are multiplied in ``parts``
    """

    constant: str
    chunks: tuple[Chunk, ...]
    lanes: int
    inner: int
    groups: int
    taps: tuple[Tap, Tap]
    cell: int = 1
    """Input channels that are multiplied together: the elements of a cell (``graph/dtypes.py``)."""
    transposed: bool = False
    """The constant is [C, O/groups, KH, KW] of a transposed convolution."""
    parts: int = 1

    def pack(self, constants: Constants) -> Array:
        w = constants[self.constant]
        if self.transposed:
            w = _swap_groups(w, self.groups)
        w = _select(_select(w, 2, self.taps[0]), 3, self.taps[1])
        out_channels, group_in, kh, kw = w.shape
        group_out = out_channels // self.groups
        panels = []
        for chunk in self.chunks:
            first = chunk.out_block * self.lanes
            last = min(first + chunk.blocks * self.lanes, out_channels)
            begin, count = chunk.in_begin * self.inner, chunk.in_count * self.inner
            dense = np.zeros((chunk.blocks * self.lanes, count, kh, kw), w.dtype)
            for group in range(first // group_out, (last - 1) // group_out + 1):
                a, b = max(first, group * group_out), min(last, (group + 1) * group_out)
                start = group * group_in
                c, d = max(begin, start), min(begin + count, start + group_in)
                if c < d:
                    dense[a - first : b - first, c - begin : d - begin] = w[a:b, c - start : d - start]
            cells = chunk.in_count, self.inner // self.cell, self.cell
            split = dense.reshape(chunk.blocks, self.lanes, *cells, kh, kw)
            panel = split.transpose(2, 5, 6, 3, 0, 1, 4)
            panels.append(
                (split_cells(panel, chunk.blocks * self.lanes) if self.parts > 1 else panel).reshape(-1)
            )
        packed: Array = np.concatenate(panels)
        narrow = self.cell == cell_elements("bfloat16") and packed.dtype == np.float32
        return round_bfloat16(packed) if narrow else packed


def _swap_groups(w: Array, groups: int) -> Array:
    """[C, O/groups, KH, KW] → [O, C/groups, KH, KW]."""
    in_channels, group_out, kh, kw = w.shape
    split = w.reshape(groups, in_channels // groups, group_out, kh, kw)
    swapped: Array = split.transpose(0, 2, 1, 3, 4).reshape(-1, in_channels // groups, kh, kw)
    return swapped


def _select(w: Array, axis: int, tap: Tap) -> Array:
    index = [tap.begin + i * tap.step for i in range(tap.count)]
    return w if index == list(range(w.shape[axis])) else np.take(w, index, axis)


def choose_grouped_tiling(
    width: int, out_channels: int, in_channels: int, groups: int, lanes: int, inner: int, target: Target,
    height: int = 1, whole: bool = True, parts: int = 1,
) -> Tiling:  # fmt: skip
    """``choose_tiling`` where groups share blocks.

    A chunk reads the input of every group it touches, so that narrow chunks multiply fewer zeros.
    """
    run = group_blocks(out_channels, in_channels, groups, lanes, inner)

    def cycles(t: Tiling) -> float:
        products = sum(
            chunk.in_count * count * tile_cycles(max(t.tile_rows, 1) * pixels, chunk.blocks, target, parts)
            for chunk in cut_chunks(
                out_channels, in_channels, groups, cut_blocks(run, t.blocks), lanes, inner, 1
            )
            for pixels, count in zip(t.rows.pixels, t.rows.tiles, strict=True)
        )
        return products / (t.tile_rows or height)

    return min(rank_tilings(width, run, target, height, whole, parts), key=cycles)


def group_blocks(out_channels: int, in_channels: int, groups: int, lanes: int, inner: int) -> int:
    """Output blocks that belong together: those of one group where groups are whole blocks, else all."""
    shared = shares_blocks(out_channels, in_channels, groups, lanes, inner)
    return -(-out_channels // lanes) if shared else -(-out_channels // groups // lanes)


def shares_blocks(out_channels: int, in_channels: int, groups: int, lanes: int, inner: int) -> bool:
    """Whether there are blocks that hold channels of several groups, of the input or the output."""
    whole = out_channels // groups % lanes == 0 and in_channels // groups % inner == 0
    return groups > 1 and not whole


def cut_chunks(
    out_channels: int, in_channels: int, groups: int, blocks: tuple[int, ...], lanes: int, inner: int,
    taps: int, most_floats: int | None = None,
) -> tuple[Chunk, ...]:  # fmt: skip
    """Consecutive chunks of output blocks; each reads the input blocks its groups touch.

    ``blocks``: of each chunk of a run (``group_blocks``, ``cut_blocks``).  Groups of whole blocks have
    chunks of their own.  Others share blocks: a chunk's panel has ``in_count · taps · inner · blocks ·
    lanes`` weights, with zeros where an input channel of its range belongs to another group.  Where that
    is more than ``most_floats``, chunks are cut along the input too: then several in a row have the same
    output blocks.
    """
    out_blocks = -(-out_channels // lanes)
    in_blocks = -(-in_channels // inner)
    per_group_out, per_group_in = out_channels // groups, in_channels // groups
    run = group_blocks(out_channels, in_channels, groups, lanes, inner)
    chunks: list[Chunk] = []
    offset = 0
    first = 0
    for count in blocks * (out_blocks // run):
        first_group = first * lanes // per_group_out
        last_group = (min((first + count) * lanes, out_channels) - 1) // per_group_out
        begin = first_group * per_group_in // inner
        end = min(-(-(last_group + 1) * per_group_in // inner), in_blocks)
        block_floats = taps * inner * count * lanes
        parts = (
            1 if most_floats is None else min(-(-(end - begin) * block_floats // most_floats), end - begin)
        )
        for part in range(max(parts, 1)):
            a = begin + (end - begin) * part // max(parts, 1)
            b = begin + (end - begin) * (part + 1) // max(parts, 1)
            chunks.append(Chunk(first, count, a, b - a, offset, part > 0, part < parts - 1))
            offset += (b - a) * block_floats
        first += count
    return tuple(chunks)


def panel_size(chunks: tuple[Chunk, ...], taps: int, inner: int, lanes: int) -> int:
    """Floats of all panels."""
    last = chunks[-1]
    return last.weights + last.in_count * taps * inner * last.blocks * lanes
