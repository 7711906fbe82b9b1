"""A product with a constant matrix (``csrc/kernels/gemm.h``)."""

from __future__ import annotations

from collections.abc import Iterator

from convoy.codegen.writer import Writer, activation
from convoy.graph.dtypes import DType, cell_elements
from convoy.graph.ops import MatMul
from convoy.kernels.epilogue import make_epilogue
from convoy.kernels.gemm import GEMM_BLOCKS, Gemm, PackMatrix
from convoy.kernels.kernel import KernelKind
from convoy.kernels.matmul_scaled import GemmScaled, emit_gemm_scaled, find_matrix, plan_scaled
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


def plan_matmul(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, MatMul)
    weight = node.inputs[1]
    k, n = graph.shape(weight)
    width = GEMM_BLOCKS * values.lanes
    x = values.array(node.inputs[0])
    residual = values.array(fusion.residual) if fusion.residual else None
    if (matrix := find_matrix(weight, x.size // k, values)) is not None:
        yield plan_scaled(fusion, x, matrix, residual, values)
        return
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


KERNEL = KernelKind(
    nodes=(MatMul,), plan=plan_matmul, emitters={Gemm: emit_gemm, GemmScaled: emit_gemm_scaled}
)
