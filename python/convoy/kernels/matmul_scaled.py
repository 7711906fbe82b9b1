"""A product with a constant matrix of 4 or 8 bits a number (``csrc/kernels/gemm_scaled.h``).

It is a float32 matrix in the graph, and known by its numbers (``graph/scaled.py``).  In the library it
takes an eighth or a quarter of the memory, which is what one row waits for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from convoy.codegen.writer import Writer, activation, fields
from convoy.graph.scaled import Scaled, find_scaled
from convoy.graph.sizes import bounds
from convoy.kernels.epilogue import make_epilogue
from convoy.kernels.gemm import GEMM_BLOCKS, GEMM_DEPTH, Gemm
from convoy.kernels.note import make_note
from convoy.kernels.strided import declare_scratch
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.recipes import Constants, Recipe
from convoy.plan.step import Arithmetic
from convoy.target import Target

NIBBLES = 8
"""CV_GEMM_NIBBLES of kernels/gemm_scaled_panel.h: numbers of 4 bits in a word."""
GROUP = 8
"""CV_GEMM_GROUP of kernels/gemm_form.h: panels that become floats together."""
MOST_ROWS = 16
"""About so many rows are the fewest for which it pays to multiply floats instead."""


@dataclass(frozen=True)
class PackScaled(Recipe):
    """A part of a matrix of few bits, in panels of ``width`` columns.

    Integers: of 4 bits words [ceil(N / width)][ceil(K / 8)][width], the first step in the lowest bits; of 8
    bits [ceil(N / width)][K][width].  Scales and zeros: float32 [ceil(N / width)][ceil(K / block)][width].
    """

    constant: str
    width: int
    part: Literal["integers", "scales", "zeros"]
    matrix: Scaled = field(compare=False, repr=False)

    def pack(self, constants: Constants) -> recipes.Array:
        values = getattr(self.matrix, self.part)
        rows, columns = values.shape
        cell = NIBBLES if self.part == "integers" and self.matrix.bits == 4 else 1
        panels = -(-columns // self.width)
        padded = np.zeros((-(-rows // cell) * cell, panels * self.width), values.dtype)
        padded[:rows, :columns] = values
        packed: recipes.Array = padded.reshape(-1, cell, panels, self.width).transpose(2, 0, 3, 1)
        if self.part != "integers":
            return packed.astype(np.float32)
        if self.matrix.bits == 8:
            return packed
        halves = (packed & 15).astype(np.uint8)
        return np.asarray(halves[..., ::2] | halves[..., 1::2] << 4)


@dataclass(frozen=True, kw_only=True)
class GemmScaled(Gemm):
    """y [m, n] = epilogue(x [m, k] · w), w whole numbers times a scale for each block of a column."""

    scales: Array
    zeros: Array | None
    """What stands for 0, in the scales' places; None: 0 does."""
    block: int
    bits: int

    @property
    def algorithm(self) -> str:
        return f"matmul, weights of {self.bits} bits"

    @property
    def precision(self) -> Arithmetic:
        return "float32"

    def least_cycles(self, target: Target) -> float:
        vectors = -(-self.n // self.panel) * GEMM_BLOCKS
        reading = (self.w.bytes + self.scales.bytes) / target.far_rate
        return max(reading, self.m * self.k * vectors / target.fma_units)


def find_matrix(weight: str, rows: int, values: Values) -> Scaled | None:
    """The matrix of few bits that a weight is, where the kernel of those is the one to read it.

    More rows are not slower for it only where the weights come from far.
    """
    few = bounds(rows)[0] <= MOST_ROWS
    if values.target.bfloat16 or not (few or values.weights_are_far):
        return None
    return find_scaled(values.graph.constants[weight])


def plan_scaled(
    fusion: Fusion, x: Array, matrix: Scaled, residual: Array | None, values: Values
) -> GemmScaled:
    weight = fusion.anchor.inputs[1]
    k, n = matrix.integers.shape
    width = GEMM_BLOCKS * values.lanes
    panels, blocks = -(-n // width), len(matrix.scales)
    size = panels * width * (k if matrix.bits == 8 else -(-k // NIBBLES) * NIBBLES // 2)

    def part(name: Literal["scales", "zeros"]) -> Array:
        return values.weight(PackScaled(weight, width, name, matrix), panels, blocks, width)

    return GemmScaled(
        note=make_note(fusion, values.graph), x=x, y=values.define_array(fusion.output),
        w=values.weight(PackScaled(weight, width, "integers", matrix), size, dtype="int8"),
        scales=part("scales"), zeros=part("zeros") if matrix.zeros.any() else None, block=matrix.block,
        bits=matrix.bits, epilogue=make_epilogue(fusion, n, residual, values), m=x.size // k, k=k, n=n,
        panel=width, far=values.weights_are_far,
        scratch=(values.scratch_array(GROUP * width * min(k, GEMM_DEPTH), private=True),),
    )  # fmt: skip


def emit_gemm_scaled(step: GemmScaled, w: Writer) -> str:
    w.headers.add("gemm_scaled")
    w.declare(f'_Static_assert(CV_GEMM_PANEL == {step.panel}, "weights are packed for other panels");')
    (scratch,) = step.scratch
    declare_scratch(f"CV_GEMM_UNPACKED({step.k})", scratch, w)
    e = step.epilogue
    residual = w.pointer(e.residual) if e.residual is not None else "NULL"
    rows = "(int)f->images" if w.batched and step.takes_rows else str(step.m)
    scales = fields(
        scales=w.pointer(step.scales), zeros=w.pointer(step.zeros) if step.zeros is not None else "",
        block=step.block, bits=step.bits, unpacked=w.pointer(scratch),
    )  # fmt: skip
    return (
        f"  const cv_activation inner = {activation(e.inner)}, outer = {activation(e.outer)};\n"
        f"  const cv_gemm_scales scales = {scales};\n"
        f"  cv_gemm_scaled(t, {rows}, {step.k}, {step.n}, {w.pointer(step.x)},\n"
        f"                 {w.pointer(step.w)}, &scales, {w.pointer(step.y)},\n"
        f"                 {w.pointer(e.bias)}, {residual}, inner, outer);\n"
    )
