"""A product with a constant matrix (``csrc/kernels/gemm.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from convoy.codegen.writer import Writer, activation
from convoy.graph.dtypes import BYTES, DType, cell_elements, round_bfloat16
from convoy.graph.ops import MatMul
from convoy.kernels.epilogue import make_epilogue
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan import recipes
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
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


def plan_matmul(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, MatMul)
    weight = node.inputs[1]
    k, n = graph.shape(weight)
    width = GEMM_BLOCKS * values.lanes
    x = values.array(node.inputs[0])
    residual = values.array(fusion.residual) if fusion.residual else None
    dtype: DType = "bfloat16" if values.target.bfloat16 else "float32"
    steps = -(-k // cell_elements(dtype))
    size = -(-n // width) * steps * width * cell_elements(dtype)
    w = values.weight(PackMatrix(weight, width, dtype), size, dtype=dtype)
    yield Gemm(
        note=make_note(fusion, graph), x=x, w=w, y=values.define_array(fusion.output),
        epilogue=make_epilogue(fusion, n, residual, values), m=x.size // k, k=k, n=n, panel=width,
        far=values.weights_are_far,
    )  # fmt: skip


def emit_gemm(step: Gemm, w: Writer) -> str:
    w.declare(f'_Static_assert(CV_GEMM_PANEL == {step.panel}, "weights are packed for other panels");')
    e, narrow = step.epilogue, step.w.dtype == "bfloat16"
    w.headers.add("gemm_bf16" if narrow else "gemm")
    residual = w.pointer(e.residual) if e.residual is not None else "NULL"
    rows = "(int)f->images" if w.batched and step.takes_rows else str(step.m)
    return (
        f"  const cv_activation inner = {activation(e.inner)}, outer = {activation(e.outer)};\n"
        f"  cv_gemm{'_bf16' * narrow}(t, {rows}, {step.k}, {step.n}, {w.pointer(step.x)}, "
        f"{w.cells(step.w)},\n"
        f"          {int(step.far)}, {w.pointer(step.y)}, {w.pointer(e.bias)}, {residual}, inner, outer);\n"
    )


KERNEL = KernelKind(nodes=(MatMul,), plan=plan_matmul, emitters={Gemm: emit_gemm})
