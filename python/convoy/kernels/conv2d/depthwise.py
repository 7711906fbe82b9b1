"""A convolution of each channel by itself, or of groups of a few (``csrc/kernels/conv2d_depthwise.h``).

Bytes are multiplied four taps at a time, or two (``csrc/kernels/conv2d_depthwise_bytes.h``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convoy.codegen.writer import Writer, epilogue, fields, joined, result_cells, source_cells
from convoy.graph.ops import Conv2d, Pair
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.quads import CELL, Quads
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array, Map
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Epilogue, Note, Step
from convoy.plan.tiles import Rows, cut_any_row, cut_row
from convoy.target import Target

DEPTHWISE_PIXELS = 16
"""The most pixels of a depthwise tile: more only makes it longer to compile."""
DEPTHWISE_SPAN = 64
"""CV_DEPTHWISE_MAX_SPAN: the most columns under a tile of pairs of rows."""


@dataclass(frozen=True)
class PackDepthwise(Recipe):
    """[C, group, KH, KW] → [block][kh][group][kw][lanes]."""

    constant: str
    lanes: int

    def pack(self, constants: Constants) -> recipes.Array:
        w = constants[self.constant]
        channels, *filters = w.shape
        padded = np.zeros((-(-channels // self.lanes) * self.lanes, *filters), np.float32)
        padded[:channels] = w
        packed: recipes.Array = padded.reshape(-1, self.lanes, *filters).transpose(0, 3, 2, 4, 1)
        return packed


@dataclass(frozen=True)
class PackDepthwiseBytes(Recipe):
    """[C, group, KH, KW] → [block][kh][group][lag][quad][lanes][4]; see ``conv2d_depthwise_bytes.h``."""

    constant: str
    lanes: int
    quads: Quads

    def pack(self, constants: Constants) -> recipes.Array:
        w = constants[self.constant]
        channels, group, kh, kw = w.shape
        q = self.quads
        blocks = -(-channels // self.lanes)
        packed = np.zeros((blocks * self.lanes, kh, group, q.lags, q.count, CELL), np.int8)
        for lag in range(q.lags):
            for tap in range(kw):
                place = lag * q.lag_step + tap * q.dilation
                packed[:channels, :, :, lag, place // CELL, place % CELL] = w[..., tap].transpose(0, 2, 1)
        split = packed.reshape(blocks, self.lanes, kh, group, q.lags, q.count, CELL)
        made: recipes.Array = split.transpose(0, 2, 3, 4, 5, 1, 6)
        return made


@dataclass(frozen=True)
class PackDepthwisePairs(Recipe):
    """[C, group, KH, KW] → [block][pair of rows][group][column][lanes][2], as 16 bits."""

    constant: str
    lanes: int
    quads: Quads

    def pack(self, constants: Constants) -> recipes.Array:
        w = constants[self.constant]
        channels, group, kh, _ = w.shape
        blocks, pairs, width = -(-channels // self.lanes), -(-kh // 2), self.quads.width
        padded = np.zeros((blocks * self.lanes, group, 2 * pairs, width), np.int16)
        padded[:channels, :, :kh, :: self.quads.dilation] = w
        split = padded.reshape(blocks, self.lanes, group, pairs, 2, width).transpose(0, 3, 2, 5, 1, 4)
        made: recipes.Array = np.ascontiguousarray(split).view(np.int8)
        return made


@dataclass(frozen=True, kw_only=True)
class DepthwiseConv(Step):
    x: Map
    w: Array
    y: Map
    epilogue: Epilogue
    kernel: Pair
    stride: Pair
    dilation: Pair
    pad: Pair
    rows: Rows
    """Where y's width is known at the call: the most pixels of a tile, and no tiles."""
    group: int
    """Channels of a group."""
    multiplier: int
    """Filters of each channel; 1 where a group has several channels."""

    quads: Quads | None = None
    """How bytes meet a kernel row; None where x is floats."""
    parts: int = 1
    """In which they are multiplied: by quads, or in parts by pairs of rows."""

    @property
    def algorithm(self) -> str:
        return f"depthwise{' by groups' * (self.group > 1)}{', int8' * (self.quads is not None)}"

    def least_cycles(self, target: Target) -> float:
        kh, row = self.kernel
        if self.quads is not None:
            kh, row = (kh, self.quads.count) if self.parts == 1 else (-(-kh // 2), self.quads.width)
        return self.y.blocks * self.y.height * self.y.width * self.group * kh * row / target.fma_units

    @property
    def block_weights(self) -> int:
        """Vectors of weights of a block."""
        return count_weights(self.kernel, self.group, self.quads, self.parts)


def count_weights(kernel: Pair, group: int, quads: Quads | None, parts: int) -> int:
    """Vectors of weights of a block, of cells of 32 bits."""
    kh, kw = kernel
    if quads is None:
        return kh * group * kw
    return kh * group * quads.lags * quads.count if parts == 1 else -(-kh // 2) * group * quads.width


def depthwise_step(
    note: Note, node: Conv2d, x: Map, y: Map, epilogue: Epilogue, values: Values
) -> DepthwiseConv:
    """The step of a depthwise convolution."""
    channels, group, kh, kw = values.graph.shape(node.inputs[1])
    recipe = PackDepthwise(node.inputs[1], values.lanes)
    w = values.weight(recipe, y.blocks, kh, group, kw, values.lanes)
    most = min(DEPTHWISE_PIXELS, values.target.accumulators + 2 - kw)
    return DepthwiseConv(
        note=note, x=x, w=w, y=y, epilogue=epilogue, group=group,
        multiplier=channels // node.groups // group,
        kernel=(kh, kw), stride=node.stride, dilation=node.dilation, pad=node.padding[:2],
        rows=cut_any_row(y.width, most),
    )  # fmt: skip


def depthwise_bytes_step(
    note: Note, node: Conv2d, weight: str, quads: Quads, x: Map, y: Map, epilogue: Epilogue, values: Values
) -> DepthwiseConv:
    """The same of bytes."""
    channels, group, kh, kw = values.graph.shape(weight)
    parts, lanes = values.target.dot_parts, values.lanes
    size = y.blocks * count_weights((kh, kw), group, quads, parts) * lanes * CELL
    if parts == 1:
        recipe: Recipe = PackDepthwiseBytes(weight, lanes, quads)
        held = values.target.accumulators + 2 - quads.lags * quads.count
        most = max(CELL, min(DEPTHWISE_PIXELS, held) // CELL * CELL)
    else:
        recipe = PackDepthwisePairs(weight, lanes, quads)
        within = (DEPTHWISE_SPAN - quads.width) // quads.stride + 1
        most = max(1, min(DEPTHWISE_PIXELS, values.target.accumulators + 2, within))
    w = values.weight(recipe, size, dtype="int8")
    return DepthwiseConv(
        note=note, x=x, w=w, y=y, epilogue=epilogue, group=group, quads=quads, parts=parts,
        multiplier=channels // node.groups // group,
        kernel=(kh, kw), stride=node.stride, dilation=node.dilation, pad=node.padding[:2],
        rows=_cut_quads(y.width, most),
    )  # fmt: skip


def _cut_quads(width: int, most: int) -> Rows:
    """Tiles of whole quads, as equal as can be, where the row is some of them."""
    if is_open(width) or width % CELL or most < CELL:
        return cut_any_row(width, most)
    rows = cut_row(width // CELL, most // CELL)
    large, small = rows.pixels
    return Rows((large * CELL, small * CELL), rows.tiles)


def emit_depthwise(step: DepthwiseConv, w: Writer) -> str:
    w.headers.add("conv2d_depthwise_bytes" if step.quads else "conv2d_depthwise")
    if step.quads:
        w.expect_parts(step.parts)
    any_width, names = is_open(step.y.width), []
    for pixels in range(1, step.rows.pixels[0] + 1) if any_width else step.rows.pixels:
        names.append(_declare_tile(step, pixels, w))
    conv = fields(
        block_weights=step.block_weights,
        stride_h=step.stride[0], stride_w=step.stride[1], dilation_h=step.dilation[0],
        pad_top=step.pad[0], pad_left=step.pad[1],
        group=step.group, multiplier=step.multiplier,
        pixels="" if any_width else f"{{{joined(step.rows.pixels)}}}",
        tiles="" if any_width else f"{{{joined(step.rows.tiles)}}}",
        tile="" if any_width else f"{{{joined(names)}}}",
    )  # fmt: skip
    cut = ""
    if any_width:
        w.headers.add("rows")
        tiles = w.table("cv_depthwise_tile", ["NULL", *names])
        cut = (
            f"  cv_cut_row(c.pixels, c.tiles, y.width, {step.rows.pixels[0]});\n"
            f"  for (int i = 0; i < 2; i++) c.tile[i] = {tiles}[c.pixels[i]];\n"
        )
    return (
        f"{source_cells('x', step.x, w)}{result_cells('y', step.y, w)}{epilogue(step.epilogue, w)}"
        f"  {'' if any_width or is_open(step.pad) else 'static const '}cv_depthwise c = {conv};\n{cut}"
        f"  cv_conv2d_depthwise(t, &c, x, {w.cells(step.w)}, y, &e);\n"
    )


def _declare_tile(step: DepthwiseConv, pixels: int, w: Writer) -> str:
    """The name of a register tile of so many pixels."""
    (kh, kw), stride, dilation = step.kernel, step.stride[1], step.dilation[1]
    shared = f"g{step.group}_m{step.multiplier}"
    if step.quads:
        kw = step.quads.width
        name = f"depthwise_{kh}x{kw}_s{stride}_{shared}_{pixels}_bytes"
        sizes = joined((kh, kw, stride, pixels, step.group, step.multiplier))
        w.declare(f"CV_DEPTHWISE_BYTES_TILE({name}, {sizes})")
        return name
    narrow = step.x.dtype == "bfloat16"
    name = f"depthwise_{kh}x{kw}_s{stride}_d{dilation}_{shared}_{pixels}{'_bf16' * narrow}"
    sizes = joined((kh, kw, stride, dilation, pixels, step.group, step.multiplier))
    w.declare(f"CV_DEPTHWISE_{'BF16_' * narrow}TILE({name}, {sizes})")
    return name
