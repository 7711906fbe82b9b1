"""A product with a constant matrix: its step, and the panels that the matrix is packed in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from convoy.graph.dtypes import BYTES, DType, cell_elements, round_bfloat16
from convoy.plan import recipes
from convoy.plan.buffers import Array
from convoy.plan.recipes import Constants, Recipe, split_cells
from convoy.plan.step import Epilogue, Step
from convoy.target import Target

GEMM_BLOCKS = 2
"""CV_GEMM_BLOCKS of kernels/gemm.h."""
GEMM_DEPTH = 512
"""CV_GEMM_DEPTH."""


@dataclass(frozen=True)
class PackMatrix(Recipe):
    """[K, N] → panels [ceil(N / width)][K][width], zero-padded.

    Of bfloat16 [ceil(N / width)][ceil(K / 2)][width][2], rounded; of int8 the same by fours, which are
    ``split_cells`` where they are multiplied in ``parts``.
    """

    constant: str
    width: int
    dtype: DType = "float32"
    parts: int = 1

    def pack(self, constants: Constants) -> recipes.Array:
        w = constants[self.constant]
        k, n = w.shape
        panels = -(-n // self.width)
        cell = cell_elements(self.dtype)
        padded = np.zeros((-(-k // cell) * cell, panels * self.width), w.dtype)
        padded[:k, :n] = w
        packed: recipes.Array = padded.reshape(-1, cell, panels, self.width).transpose(2, 0, 3, 1)
        if self.parts > 1:
            return split_cells(packed, self.width)
        return round_bfloat16(packed) if self.dtype == "bfloat16" else packed


@dataclass(frozen=True, kw_only=True)
class Gemm(Step):
    """y [m, n] = epilogue(x [m, k] · w)."""

    x: Array
    w: Array
    y: Array
    epilogue: Epilogue
    m: int
    k: int
    n: int
    panel: int
    """Columns of a packed panel."""
    far: bool
    """Whether the weights lie beyond L2."""

    @property
    def algorithm(self) -> str:
        return "matmul, bf16" if self.w.dtype == "bfloat16" else ""

    @property
    def takes_rows(self) -> bool:
        return self.m == 1

    def least_cycles(self, target: Target) -> float:
        vectors, weight = -(-self.n // self.panel) * GEMM_BLOCKS, BYTES[self.w.dtype]
        reading = self.k * self.n * weight / target.far_rate
        return max(reading, self.m * self.k * vectors / target.fma_units / cell_elements(self.w.dtype))
