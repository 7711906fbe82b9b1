"""Products of two computed matrices of bytes, in stacks (``csrc/kernels/product_bytes.h``).

    y = quantize(scale · dequantize(x) · dequantize(w))

All are uint8 of one scale each.  Sums are exact, with zero points on both sides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from convoy.codegen.writer import Writer, fields, joined, number
from convoy.graph.dtypes import QUANTISED, cell_elements
from convoy.graph.graph import Graph
from convoy.graph.ops import Product
from convoy.graph.sizes import hint, smallest
from convoy.graph.views import View
from convoy.kernels.gemm import GEMM_BLOCKS
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.product import PRODUCT_PANELS
from convoy.kernels.quantize import numbers, scale_of
from convoy.kernels.strided import declare_scratch, stack_views, write_sum_of_nothing, write_view
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.buffers import Array
from convoy.plan.cost import conversion_cycles
from convoy.plan.fuse import Fusion
from convoy.plan.step import Scale, Step
from convoy.target import Target

CELL = cell_elements("uint8")
MOST_PACKED = 1 << 15
"""CV_BYTE_PRODUCT_DEPTH of kernels/product_bytes.h: a thread packs columns as deep, beyond L2, too."""
MOST_ROWS = 14
"""CV_GEMM_ROWS, at most."""


@dataclass(frozen=True, kw_only=True)
class MultiplyByteStack(Step):
    """For each pair of matrices of views [stack, M, K] and [stack, K, N]."""

    x: Array
    w: Array
    y: Array
    x_view: View
    w_view: View
    y_view: View
    zeros: tuple[int, int]
    """Zero points of x and w."""
    factor: float
    """What a step of the sums is, in steps of y."""
    made: Scale

    @property
    def algorithm(self) -> str:
        return "product, int8"


def takes_product(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    node = fusion.anchor
    assert isinstance(node, Product)
    read = [fusion.bytes_of(name) for name in node.inputs]
    if fusion.quantize is None or graph.dtype(fusion.output) != "uint8":
        return False
    for made in read:
        if made is None or made.inputs[0] in graph.constants:
            return False
        if graph.dtype(made.inputs[0]) != "uint8" or graph.scalar(made.inputs[1]) is None:
            return False
    if node.a.shape[-2] == 1:
        return False
    of_bytes, of_floats = product_cycles(node, graph, target, threads)
    return of_bytes <= of_floats


def product_cycles(node: Product, graph: Graph, target: Target, threads: int) -> tuple[float, float]:
    """Estimates: of bytes, and of floats that are made of them and rounded."""
    node, graph = hint(node), graph.likely
    *stack, m, n = node.y.shape
    k, count = node.a.shape[-1], prod(stack)
    vectors = -(-n // (GEMM_BLOCKS * target.lanes)) * GEMM_BLOCKS

    def product(steps: float, element: int) -> float:
        packing = count * k * n * element / target.copy_rate
        return (count * m * vectors * steps / target.fma_units + packing) / threads + target.step

    read, made = sum(graph.tensors[name].size for name in node.inputs), count * m * n
    steps = -(-k // CELL) * (1.0 if target.dots else target.direct.bytes_apart)
    rounding = count * m * vectors * target.direct.elementwise / threads
    converting = conversion_cycles(read, made, target) / threads + 3 * target.step
    return product(steps, 2) + rounding, product(k, 4) + converting


def plan_product(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Product)
    assert fusion.quantize is not None
    views = stack_views(node, {"x": node.a, "w": node.b, "y": node.y})
    (x_scale, x_zero), (w_scale, w_zero) = (
        numbers(read, graph) for name in node.inputs if (read := fusion.bytes_of(name))
    )
    made = scale_of(fusion.quantize, graph)
    x, w = (values.array(fusion.source(name)) for name in node.inputs)
    steps = -(-smallest(node.a.shape[-1], MOST_PACKED) // CELL)
    panel = GEMM_BLOCKS * values.lanes * values.target.dot_parts
    scratch = steps * (PRODUCT_PANELS * panel + MOST_ROWS)
    yield MultiplyByteStack(
        note=make_note(fusion, graph), x=x, w=w, y=values.define_array(fusion.output),
        x_view=views["x"], w_view=views["w"], y_view=views["y"], zeros=(x_zero, w_zero),
        factor=node.scale * x_scale * w_scale / made.scale, made=made,
        cycles=product_cycles(node, graph, values.target, values.threads)[0],
        scratch=(values.scratch_array(scratch, private=True),),
    )  # fmt: skip


def emit_product(step: MultiplyByteStack, w: Writer) -> str:
    w.headers.add("product_bytes")
    (scratch,) = step.scratch
    *stack, m, n = step.y_view.shape
    k = step.x_view.shape[-1]
    declare_scratch(f"CV_BYTE_PRODUCT_SCRATCH({k})", scratch, w)
    made = step.made
    literal = fields(
        stack=f"{{{joined(stack)}}}", m=m, k=k, n=n,
        **write_view("x", step.x, step.x_view, w), **write_view("w", step.w, step.w_view, w),
        **write_view("y", step.y, step.y_view, w), x_zero=step.zeros[0], w_zero=step.zeros[1],
        scale=number(step.factor), low=number(made.low - made.zero), high=number(made.high - made.zero),
        zero=made.zero,
    )  # fmt: skip
    none = write_sum_of_nothing(k, step.y, w, made.zero)
    call = f"cv_multiply_byte_stack(t, &p, {w.pointer(scratch)})"
    return f"{none}  const cv_byte_product p = {literal};\n  {call};\n"


KERNEL = KernelKind(
    nodes=(Product,),
    plan=plan_product,
    emitters={MultiplyByteStack: emit_product},
    dtypes=frozenset({"float32", *QUANTISED}),
    takes_bytes=takes_product,
)
