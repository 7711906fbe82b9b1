"""A product of bytes with a constant matrix of bytes (``cv_gemm_bytes`` in ``csrc/kernels/gemm_bytes.h``).

    y = quantize(outer(inner(dequantize(x) · dequantize(w) + bias) + residual))

As in convolutions of bytes (``kernels/conv2d/bytes.py``) sums begin at -zero · Σ w, and become floats once
they are whole.  x is uint8, w int8 without zero points, K a multiple of a cell of four.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, requantize
from convoy.graph.dtypes import BYTES, QUANTISED, cell_elements
from convoy.graph.graph import Graph
from convoy.graph.ops import MatMul
from convoy.kernels.conv2d.bytes import MOST_PRODUCTS, make_requantizing
from convoy.kernels.gemm import GEMM_BLOCKS, Gemm, PackMatrix
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.cost import conversion_cycles
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step
from convoy.target import Target

CELL = cell_elements("int8")


@dataclass(frozen=True, kw_only=True)
class GemmBytes(Gemm):
    """y [m, n] = epilogue(x [m, k] · w), of bytes."""

    parts: int
    """In which they are multiplied."""

    @property
    def algorithm(self) -> str:
        return "matmul, int8"


def takes_matmul(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    node = fusion.anchor
    assert isinstance(node, MatMul)
    if not multiplies_bytes(fusion, graph):
        return False
    cycles = matmul_cycles(node, graph, target, threads)
    return cycles["matmul int8"] <= cycles["matmul with conversions"]


def multiplies_bytes(fusion: Fusion, graph: Graph) -> bool:
    """Whether the kernel computes this fusion."""
    x, w = (fusion.bytes_of(name) for name in fusion.anchor.inputs[:2])
    added = fusion.bytes_of(fusion.residual) if fusion.residual else None
    if x is None or w is None:
        return False
    rows = [x, added] if added else [x]
    if any(graph.dtype(made.inputs[0]) != "uint8" or graph.scalar(made.inputs[1]) is None for made in rows):
        return False
    if fusion.quantize and graph.dtype(fusion.output) != "uint8":
        return False
    if graph.dtype(w.inputs[0]) != "int8" or graph.constants[w.inputs[2]].any():
        return False
    depth = graph.shape(w.inputs[0])[0]
    return (
        (graph.scalar(w.inputs[1]) is not None or w.axis == 1)
        and depth % CELL == 0
        and depth <= MOST_PRODUCTS
    )


def matmul_cycles(node: MatMul, graph: Graph, target: Target, threads: int) -> dict[str, float]:
    """Estimates: products of bytes, and of floats that are made of them."""
    graph = graph.likely
    k, n = graph.shape(node.inputs[1])
    x, y = (graph.tensors[name].size for name in (node.inputs[0], node.output))
    rows, vectors = y // n, -(-n // (GEMM_BLOCKS * target.lanes)) * GEMM_BLOCKS

    def product(steps: float, weight: int) -> float:
        computed = rows * steps * vectors / target.fma_units
        return max(computed, k * n * weight / target.far_rate) / threads + target.step

    steps = k / CELL * (1.0 if target.dots else target.direct.bytes_apart)
    converted = conversion_cycles(x, y, target) / threads + 2 * target.step
    return {
        "matmul int8": product(steps, BYTES["int8"]),
        "matmul with conversions": product(k, BYTES["float32"]) + converted,
    }


def plan_matmul(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, MatMul)
    data, weight = (fusion.bytes_of(name) for name in node.inputs[:2])
    assert data is not None
    assert weight is not None
    k, n = graph.shape(weight.inputs[0])
    width = GEMM_BLOCKS * values.lanes
    x = values.array(data.inputs[0])
    residual = values.array(fusion.source(fusion.residual)) if fusion.residual else None
    parts = values.target.dot_parts
    recipe = PackMatrix(weight.inputs[0], width, "int8", parts)
    w = values.weight(recipe, -(-n // width) * width * k * parts, dtype="int8")
    yield GemmBytes(
        note=make_note(fusion, graph), x=x, w=w, y=values.define_array(fusion.output),
        epilogue=make_requantizing(fusion, data, weight, residual, values), m=x.size // k, k=k, n=n,
        panel=width, parts=parts, far=values.weights_are_far,
        cycles=matmul_cycles(node, graph, values.target, values.threads)["matmul int8"],
    )  # fmt: skip


def emit_gemm_bytes(step: GemmBytes, w: Writer) -> str:
    w.headers.add("gemm_bytes")
    w.declare(f'_Static_assert(CV_GEMM_PANEL == {step.panel}, "weights are packed for other panels");')
    w.expect_parts(step.parts)
    e = step.epilogue
    assert e.requantize is not None
    residual = w.pointer(e.residual) if e.residual is not None else "NULL"
    rows = "(int)f->images" if w.batched and step.takes_rows else str(step.m)
    return (
        f"{requantize(e, e.requantize, w)}"
        f"  cv_gemm_bytes(t, {rows}, {step.k}, {step.n}, {w.pointer(step.x)}, {w.cells(step.w)}, "
        f"{int(step.far)}, {w.cells(e.bias)},\n"
        f"                (cv_gemm_requantized){{{w.pointer(step.y)}, {residual}, &requantize}});\n"
    )


KERNEL = KernelKind(
    nodes=(MatMul,),
    plan=plan_matmul,
    emitters={GemmBytes: emit_gemm_bytes},
    dtypes=frozenset({"float32", *QUANTISED}),
    takes_bytes=takes_matmul,
)
