"""A first layer by Winograd's algorithm along its rows (``csrc/kernels/conv2d_winograd_rows.h``).

A step transforms the rows of x to V; the next one multiplies V where no value of it is too large, else x.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import indent

import numpy as np

from convoy.codegen.writer import Writer, epilogue, joined, number, wrap
from convoy.graph.ops import Conv2d
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.direct import DirectConv, call_with_tiles, emit_call, take_tiles
from convoy.kernels.conv2d.panels import Chunk, cut_chunks, cut_spans, panel_size
from convoy.kernels.conv2d.row_points import BLOCKS, OUT, ROOM, RowPoints, cut_points
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array, Map, Operand
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Note, Step
from convoy.plan.tiles import cut_blocks


@dataclass(frozen=True)
class PackRowPoints(Recipe):
    """[O, C, KH, KW] → panels, chunk after chunk: [C][kh][phase][point][blocks][lanes], U of ``points``."""

    constant: str
    chunks: tuple[Chunk, ...]
    lanes: int
    points: RowPoints

    def pack(self, constants: Constants) -> recipes.Array:
        w = constants[self.constant].astype(np.float64)
        u = self.points.weights(w).transpose(1, 2, 3, 4, 0)
        panels = []
        for chunk in self.chunks:
            size = chunk.blocks * self.lanes
            part = u[..., chunk.out_block * self.lanes :][..., :size]
            padded = np.zeros((*part.shape[:-1], size), np.float32)
            padded[..., : part.shape[-1]] = part
            panels.append(padded.reshape(-1))
        return np.concatenate(panels)


@dataclass(frozen=True, kw_only=True)
class TransformRows(Step):
    """y is V."""

    x: Map
    y: Map
    checks: Array
    """[channels · rows]"""
    points: RowPoints
    tiles: int
    """Tiles of a row."""
    pad_left: int

    @property
    def algorithm(self) -> str:
        return self.points.variant

    @property
    def tiling(self) -> str:
        return "V"

    @property
    def writes(self) -> tuple[Operand, ...]:
        return (self.y, self.checks)

    @property
    def reads(self) -> tuple[Operand, ...]:
        return (self.x,)


@dataclass(frozen=True, kw_only=True)
class MultiplyRows(Step):
    """``products`` is the convolution of V; where ``checks`` say no, ``direct`` is computed, that of x."""

    points: RowPoints
    products: DirectConv
    checks: Array
    direct: DirectConv

    @property
    def algorithm(self) -> str:
        return self.points.variant

    @property
    def share_of_products(self) -> float:
        return self.points.stride * self.points.points / (OUT * self.direct.kernel[1])

    @property
    def tiling(self) -> str:
        return f"{self.products.rows.pixels[0]}x{self.products.blocks[0]} tiles"

    @property
    def reads(self) -> tuple[Operand, ...]:
        return (*self.direct.reads, self.products.x, self.products.w, self.checks)


def row_steps(
    node: Conv2d, points: RowPoints, direct: DirectConv, values: Values
) -> tuple[TransformRows, MultiplyRows]:
    """The steps of a convolution of which ``direct`` is the one by definition."""
    x, lanes = direct.x, values.lanes
    tiles = -(-direct.y.width // OUT)
    rows = x.halo[0] + x.height + x.halo[2]
    row = tiles * points.stride * ROOM
    v = Map(
        values.scratch_array(x.channels * rows * row).buffer, x.halo[0] * row, x.channels, x.height,
        direct.y.width, 1, rows * row, row, points.step, (x.halo[0], 0, x.halo[2], 0),
    )  # fmt: skip
    checks = values.scratch_array(x.channels * rows)
    transform = TransformRows(
        note=Note(direct.note.op, f"points of the rows of {node.inputs[0]}"), x=x, y=v, checks=checks,
        points=points, tiles=tiles, pad_left=direct.pad[1],
    )  # fmt: skip
    taps = direct.kernel[0] * points.stride * points.points
    spans = cut_spans(cut_blocks(direct.y.blocks, BLOCKS))
    chunks = cut_chunks(direct.y.channels, x.channels, 1, spans, lanes, 1, taps)
    size = panel_size(chunks, taps, 1, lanes)
    recipe = PackRowPoints(node.inputs[1], chunks, lanes, points)
    products = replace(
        direct, x=v, w=values.weight(recipe, size), kernel=(direct.kernel[0], 1),
        stride=(direct.stride[0], 1), pad=(direct.pad[0], 0), chunks=chunks,
        blocks=(chunks[0].blocks, chunks[-1].blocks), tile_rows=1,
        rows=cut_points(direct.y.width, values.target),
    )  # fmt: skip
    multiply = MultiplyRows(
        note=direct.note, y=direct.y, points=points, products=products, checks=checks, direct=direct,
        cycles=direct.cycles,
    )  # fmt: skip
    return transform, multiply


def emit_transform_rows(step: TransformRows, w: Writer) -> str:
    w.headers.add("conv2d_winograd_rows")
    p = step.points
    name = f"row_points_{p.stride}_{p.points}"
    w.declare(f"CV_WINOGRAD_ROWS({name}, {p.stride}, {p.points})")
    rows = [f"{{{joined([number(value) for value in row])}}}" for row in p.transform(w.plan.lanes)]
    table = f"row_transform_{p.stride}_{p.taps}"
    w.declare(
        f"static const float {table}[{len(rows)}][CV_WINOGRAD_ROWS_CELL] __attribute__((aligned(64))) = "
        f"{{\n{wrap(rows)}}};"
    )
    return (
        f"{w.source('x', step.x)}{w.result('v', step.y)}"
        f"  {'' if is_open(step.tiles) else 'static '}const cv_winograd_rows c = "
        f"{{{step.tiles}, {step.pad_left}, {table}}};\n"
        f"  {name}(t, &c, x, v, {w.pointer(step.checks)});\n"
    )


def emit_multiply_rows(step: MultiplyRows, w: Writer) -> str:
    direct = emit_call(step.direct, w)
    products = indent(_emit_products(step, w), "  ")
    fit = f"cv_winograd_rows_fit({w.pointer(step.checks)}, {step.checks.size})"
    return (
        f"{w.result('y', step.direct.y)}{epilogue(step.direct.epilogue, w)}"
        f"  if ({fit}) {{\n{products}    return;\n  }}\n{direct}"
    )


def _emit_products(step: MultiplyRows, w: Writer) -> str:
    """The same convolution of V, whose columns are taps no more."""
    w.headers.add("conv2d_winograd_rows")
    p = step.points
    any_width, most = is_open(step.products.y.width), step.products.rows.pixels[0]
    tiles = []
    for pixels in range(1, most + 1) if any_width else step.products.rows.pixels:
        names = [f"row_tile_{pixels}x{b}_{p.stride}_{p.taps}" for b in step.products.blocks]
        for name, b in zip(names, step.products.blocks, strict=True):
            w.declare(f"CV_WINOGRAD_ROWS_TILE({name}, {joined((pixels, b, p.stride, *p.pairs))})")
        tiles.append(f"{{{joined(names)}}}")
    if any_width:
        return call_with_tiles(
            step.products, (), w, take_tiles(w, tiles, f"cv_cut_whole(c.pixels, c.tiles, y.width, {most})")
        )
    return call_with_tiles(step.products, tiles, w)
