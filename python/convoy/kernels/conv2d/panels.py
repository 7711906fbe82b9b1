"""Chunks of output blocks, and the panels of weights that they read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import numpy as np

from convoy.graph.dtypes import cell_elements, round_bfloat16
from convoy.graph.ops import Pair
from convoy.plan.recipes import Array, Constants, Recipe, split_cells
from convoy.plan.tiles import Tiling, cut_blocks, cut_tiles, rank_tilings
from convoy.target import Target

MOST_BLOCKS = 4
"""Output blocks of a tile, at most."""


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
    before: int = 0
    behind: int = 0
    """Channels of its first and of its last input block that it does not read."""

    def channels(self, inner: int) -> range:
        """The input channels it reads."""
        return range(
            self.in_begin * inner + self.before, (self.in_begin + self.in_count) * inner - self.behind
        )


@dataclass(frozen=True)
class Tap:
    """Which taps of the kernel a convolution uses along one axis: begin, begin + step, … (count)."""

    begin: int
    step: int
    count: int


@dataclass(frozen=True)
class PackConv(Recipe):
    """[O, C/groups, KH, KW] → panels, chunk after chunk, in the order in which tiles read them.

    [in_count][kh][kw][inner / cell][blocks][lanes][cell], of a first and last block only what is read;
    float32 in cells of two are rounded to bfloat16, cells of four are ``split_cells`` where they are
    multiplied in ``parts``
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
        w = take_filters(constants[self.constant], self.groups, self.taps, self.transposed)
        out_channels, group_in, kh, kw = w.shape
        group_out = out_channels // self.groups
        panels = []
        for chunk in self.chunks:
            first = chunk.out_block * self.lanes
            last = min(first + chunk.blocks * self.lanes, out_channels)
            inputs = chunk.channels(self.inner)
            dense = np.zeros((chunk.blocks * self.lanes, len(inputs), kh, kw), w.dtype)
            for group in range(first // group_out, (last - 1) // group_out + 1):
                a, b = max(first, group * group_out), min(last, (group + 1) * group_out)
                start = group * group_in
                c, d = max(inputs.start, start), min(inputs.stop, start + group_in)
                if c < d:
                    dense[a - first : b - first, c - inputs.start : d - inputs.start] = (
                        w[a:b, c - start : d - start]
                    )  # fmt: skip
            panels += [self._panel(part) for part in _split_blocks(dense, inputs, self.inner)]
        packed: Array = np.concatenate(panels)
        narrow = self.cell == cell_elements("bfloat16") and packed.dtype == np.float32
        return round_bfloat16(packed) if narrow else packed

    def _panel(self, dense: Array) -> Array:
        """The weights of a part of a block of inputs, or of whole blocks: [outputs][channels][kh][kw]."""
        outputs, channels, kh, kw = dense.shape
        inner = min(self.inner, channels)
        split = dense.reshape(
            outputs // self.lanes, self.lanes, channels // inner, inner // self.cell, self.cell, kh, kw
        )
        panel: Array = split.transpose(2, 5, 6, 3, 0, 1, 4)
        return (split_cells(panel, outputs) if self.parts > 1 else panel).reshape(-1)


def _split_blocks(dense: Array, inputs: range, inner: int) -> list[Array]:
    """[outputs][channels] of ``inputs``, cut where they begin or end within a block."""
    head = min(-inputs.start % inner, len(inputs))
    cuts = 0, head, head + (len(inputs) - head) // inner * inner, len(inputs)
    return [dense[:, a:b] for a, b in pairwise(cuts) if a < b]


def take_filters(w: Array, groups: int, taps: tuple[Tap, Tap], transposed: bool) -> Array:
    """The taps of a weight that a convolution uses, as [O, C/groups, KH, KW]."""
    if transposed:
        w = _swap_groups(w, groups)
    return _select(_select(w, 2, taps[0]), 3, taps[1])


def _swap_groups(w: Array, groups: int) -> Array:
    """[C, O/groups, KH, KW] → [O, C/groups, KH, KW]."""
    in_channels, group_out, kh, kw = w.shape
    split = w.reshape(groups, in_channels // groups, group_out, kh, kw)
    swapped: Array = split.transpose(0, 2, 1, 3, 4).reshape(-1, in_channels // groups, kh, kw)
    return swapped


def _select(w: Array, axis: int, tap: Tap) -> Array:
    index = [tap.begin + i * tap.step for i in range(tap.count)]
    return w if index == list(range(w.shape[axis])) else np.take(w, index, axis)


@dataclass(frozen=True)
class Width:
    """Chunks of as many output blocks, or one less, and the tiles that compute them."""

    tiling: Tiling
    spans: tuple[Pair, ...]
    """The first output block of each, and how many there are."""


def choose_widths(
    width: int, out_channels: int, groups: int, lanes: int, target: Target, height: int = 1,
    whole: bool = True, parts: int = 1, tile: Pair | None = None,
) -> list[Width]:  # fmt: skip
    """Chunks of a convolution by groups: the outputs of each are made of the same groups.

    So the only zeros they multiply are in blocks that hold several groups.  Each number of blocks has tiles
    of its own.  What these take says how a run of blocks is cut, where ``tile`` does not.
    """
    runs = cut_runs(out_channels, groups, lanes)
    longest = max(count for _, count in runs)
    most = min(longest, tile[1] if tile else MOST_BLOCKS)
    tilings = {
        blocks: cut_tiles(width, blocks, min(tile[0], target.accumulators // blocks), blocks, target)
        if tile
        else next(
            t for t in rank_tilings(width, blocks, target, height, whole, parts) if t.blocks == blocks
        )
        for blocks in range(1, most + 1)
    }
    costs = {blocks: t.cycles + target.direct.weight * t.weights for blocks, t in tilings.items()}
    cheapest: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for run in range(1, longest + 1):
        cuts = [(costs[b] + cheapest[run - b][0], (b, *cheapest[run - b][1])) for b in costs if b <= run]
        cheapest.append(min(cuts, key=lambda c: (round(c[0]), len(c[1]))))
    spans: dict[int, list[Pair]] = {}
    for first, count in runs:
        for blocks in cut_blocks(count, most) if tile else cheapest[count][1]:
            spans.setdefault(blocks, []).append((first, blocks))
            first += blocks
    return [Width(tilings[blocks], tuple(found)) for blocks, found in sorted(spans.items(), reverse=True)]


def cut_runs(out_channels: int, groups: int, lanes: int) -> list[Pair]:
    """Output blocks in a row whose outputs are of the same groups: the first one, and how many."""
    each = out_channels // groups
    of_blocks = [
        (first // each, (min(first + lanes, out_channels) - 1) // each)
        for first in range(0, out_channels, lanes)
    ]
    runs: list[Pair] = []
    for _, same in groupby(range(len(of_blocks)), of_blocks.__getitem__):
        blocks = list(same)
        runs.append((blocks[0], len(blocks)))
    return runs


def cut_spans(blocks: Sequence[int]) -> tuple[Pair, ...]:
    """Chunks of so many output blocks one after the other: the first block of each, and how many."""
    return tuple(zip(accumulate(blocks, initial=0), blocks, strict=False))


def cut_chunks(
    out_channels: int, in_channels: int, groups: int, spans: Sequence[Pair], lanes: int, inner: int,
    taps: int, most_floats: int | None = None, cell: int | None = None, begin: int = 0,
) -> tuple[Chunk, ...]:  # fmt: skip
    """Chunks of output blocks, each with the input blocks its groups touch; panels are from ``begin`` on.

    ``cell``: of the first and the last of these blocks only the cells of so many channels are read that the
    groups have some of; None: all.  A panel has zeros for the others' channels, as it has between the
    groups of a chunk.  A panel of more than ``most_floats`` is cut along the input: then several chunks in
    a row have the same output blocks.
    """
    in_blocks = -(-in_channels // inner)
    out_each, in_each = out_channels // groups, in_channels // groups
    chunks: list[Chunk] = []
    for first, count in spans:
        a = first * lanes // out_each * in_each
        b = ((min((first + count) * lanes, out_channels) - 1) // out_each + 1) * in_each
        blocks = range(a // inner, min(-(-b // inner), in_blocks))
        before, behind = (
            (a - blocks.start * inner) // cell * cell if cell else 0,
            (blocks.stop * inner - b) // cell * cell if cell else 0,
        )
        block_floats = taps * inner * count * lanes
        parts = max(
            1 if most_floats is None else min(-(-len(blocks) * block_floats // most_floats), len(blocks)), 1
        )
        for part in range(parts):
            c, d = (blocks.start + len(blocks) * i // parts for i in (part, part + 1))
            last = part == parts - 1
            edges = before if part == 0 else 0, behind if last else 0
            chunks.append(Chunk(first, count, c, d - c, begin, part > 0, not last, *edges))
            begin += (d - c) * block_floats - sum(edges) * taps * count * lanes
    return tuple(chunks)


def panel_size(chunks: tuple[Chunk, ...], taps: int, inner: int, lanes: int) -> int:
    """Floats of all panels."""
    last = chunks[-1]
    return last.weights + len(last.channels(inner)) * taps * last.blocks * lanes
