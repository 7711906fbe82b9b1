"""A convolution of one filter a channel (``csrc/kernels/conv2d_depthwise.h``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convoy.codegen.writer import Writer, epilogue, joined
from convoy.graph.ops import Conv2d, Pair
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array, Map
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Epilogue, Note, Step
from convoy.plan.tiles import FMA_UNITS, Rows, cut_row

DEPTHWISE_PIXELS = 16
"""The most pixels of a depthwise tile: more only makes it longer to compile."""


@dataclass(frozen=True)
class PackDepthwise(Recipe):
    """[C, 1, KH, KW] → [block][kh][kw][lanes]."""

    constant: str
    lanes: int

    def pack(self, constants: Constants) -> recipes.Array:
        w = constants[self.constant]
        channels, _, kh, kw = w.shape
        blocks = -(-channels // self.lanes)
        padded = np.zeros((blocks * self.lanes, kh, kw), np.float32)
        padded[:channels] = w[:, 0]
        packed: recipes.Array = padded.reshape(blocks, self.lanes, kh, kw).transpose(0, 2, 3, 1)
        return packed


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

    @property
    def algorithm(self) -> str:
        return "depthwise"

    @property
    def least_cycles(self) -> float:
        taps = self.kernel[0] * self.kernel[1]
        return self.y.blocks * self.y.height * self.y.width * taps / FMA_UNITS


def depthwise_step(
    note: Note, node: Conv2d, x: Map, y: Map, epilogue: Epilogue, values: Values
) -> DepthwiseConv:
    """The step of a depthwise convolution."""
    _, _, kh, kw = values.graph.shape(node.inputs[1])
    w = values.weight(PackDepthwise(node.inputs[1], values.lanes), y.blocks * kh * kw * values.lanes)
    return DepthwiseConv(
        note=note, x=x, w=Array(w, 0, (y.blocks, kh, kw, values.lanes)), y=y, epilogue=epilogue,
        kernel=(kh, kw), stride=node.stride, dilation=node.dilation, pad=node.padding[:2],
        rows=cut_row(y.width, min(DEPTHWISE_PIXELS, values.target.accumulators + 2 - kw)),
    )  # fmt: skip


def emit_depthwise(step: DepthwiseConv, w: Writer) -> str:
    w.headers.add("conv2d_depthwise")
    names = []
    for pixels in step.rows.pixels:
        kh, kw = step.kernel
        stride, dilation = step.stride[1], step.dilation[1]
        name = f"depthwise_{kh}x{kw}_s{stride}_d{dilation}_{pixels}"
        w.declare(f"CV_DEPTHWISE_TILE({name}, {kh}, {kw}, {stride}, {dilation}, {pixels})")
        names.append(name)
    return (
        f"{w.maps(step.x, step.y)}{epilogue(step.epilogue, w)}"
        f"  static const cv_depthwise c = {{{joined(step.kernel)}, {joined(step.stride)}, "
        f"{step.dilation[0]}, {joined(step.pad)},\n"
        f"      {{{joined(step.rows.pixels)}}}, {{{joined(step.rows.tiles)}}}, {{{joined(names)}}}}};\n"
        f"  cv_conv2d_depthwise(t, &c, x, {w.pointer(step.w)}, y, &e);\n"
    )
