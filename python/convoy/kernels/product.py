"""Products of two computed matrices, in stacks (``csrc/kernels/product.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from convoy.codegen.writer import Writer, fields, joined, number
from convoy.graph.ops import Product
from convoy.graph.sizes import is_open, smallest
from convoy.graph.views import View
from convoy.kernels.gemm import GEMM_BLOCKS, GEMM_DEPTH
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.strided import declare_scratch, stack_views, write_sum_of_nothing, write_view
from convoy.kernels.values import Values
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step
from convoy.target import Target

PRODUCT_PANELS = 4
"""CV_PRODUCT_PANELS of kernels/product.h."""


@dataclass(frozen=True, kw_only=True)
class MultiplyStack(Step):
    """y = scale · x · w for each pair of matrices of views [stack, M, K] and [stack, K, N]."""

    x: Array
    w: Array
    y: Array
    x_view: View
    w_view: View
    y_view: View
    scale: float
    bfloat16: bool
    """It multiplies that, but for a single row, which is read where it lies."""

    @property
    def algorithm(self) -> str:
        return "product, bf16" if self.bfloat16 else ""

    def least_cycles(self, target: Target) -> float:
        *stack, m, n = self.y_view.shape
        k = self.x_view.shape[-1]
        panel = GEMM_BLOCKS * target.lanes
        packing = prod(stack) * k * n * 4 * (1 if m == 1 else 2) / target.copy_rate
        rate = target.fma_units * (2 if self.bfloat16 else 1)
        return prod(stack) * m * k * -(-n // panel) * GEMM_BLOCKS / rate + packing


def plan_product(fusion: Fusion, values: Values) -> Iterator[Step]:
    node = fusion.anchor
    assert isinstance(node, Product)
    views = stack_views(node, {"x": node.a, "w": node.b, "y": node.y})
    x, w = (values.array(name) for name in node.inputs)
    panel = GEMM_BLOCKS * values.lanes
    k, n = node.b.shape[-2:]
    whole, most = smallest(k, GEMM_DEPTH) * (-(-n // panel) * panel), GEMM_DEPTH * PRODUCT_PANELS * panel
    yield MultiplyStack(
        note=make_note(fusion, values.graph), x=x, w=w, y=values.define_array(fusion.output),
        x_view=views["x"], w_view=views["w"], y_view=views["y"], scale=node.scale,
        bfloat16=values.target.bfloat16 and node.a.shape[-2] != 1,
        scratch=(values.scratch_array(smallest(whole, most), private=True),),
    )  # fmt: skip


def emit_product(step: MultiplyStack, w: Writer) -> str:
    w.headers.add("product_bf16" if step.bfloat16 else "product")
    (scratch,) = step.scratch
    *stack, m, n = step.y_view.shape
    k = step.x_view.shape[-1]
    if not is_open(k) and not is_open(n):
        declare_scratch(f"CV_PRODUCT_SCRATCH({k}, {n})", scratch, w)
    literal = fields(
        stack=f"{{{joined(stack)}}}", m=m, k=k, n=n,
        **write_view("x", step.x, step.x_view, w), **write_view("w", step.w, step.w_view, w),
        **write_view("y", step.y, step.y_view, w), scale=number(step.scale),
    )  # fmt: skip
    name = f"cv_multiply_stack{'_bf16' * step.bfloat16}"
    none = write_sum_of_nothing(k, step.y, w)
    return f"{none}  const cv_product p = {literal};\n  {name}(t, &p, {w.pointer(scratch)});\n"


KERNEL = KernelKind(nodes=(Product,), plan=plan_product, emitters={MultiplyStack: emit_product})
