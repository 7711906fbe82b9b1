"""Attention: softmax(scale · q · kᵀ + mask) · v in stacks of heads (``csrc/kernels/attention.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from convoy.codegen.writer import Writer, fields, joined, number
from convoy.graph.ops import Attention
from convoy.graph.sizes import largest, smallest
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

EXP_CYCLES = 10.0
"""What the weight of a vector of scores takes, besides the products (Zen 5, AVX-512, 2026-11-23)."""


@dataclass(frozen=True, kw_only=True)
class Attend(Step):
    """Views q [heads, M, D], k [heads, N, D], v [heads, N, E], mask [heads, M, N], y [heads, M, E]."""

    q: Array
    k: Array
    v: Array
    mask: Array | None
    y: Array
    q_view: View
    k_view: View
    v_view: View
    mask_view: View | None
    y_view: View
    scale: float
    reach: int
    """Row i sees the keys up to i + reach."""
    safe: bool
    """A row without a number is zeros."""
    bfloat16: bool
    """It multiplies that, but for a single row, which is read where it lies."""

    @property
    def algorithm(self) -> str:
        return "attention, bf16" if self.bfloat16 else ""

    def least_cycles(self, target: Target) -> float:
        *stack, keys, depth = self.k_view.shape
        rows, width = self.y_view.shape[-2:]
        vectors = [-(-n // target.lanes) for n in (keys, width)]
        rate = target.fma_units * (2 if self.bfloat16 else 1)
        sums = rows * (vectors[0] * depth + vectors[1] * keys) / rate
        packing = keys * (depth + width) * 4 * (1 if rows == 1 else 2) / target.copy_rate
        return prod(stack) * (sums + rows * vectors[0] * EXP_CYCLES + packing)


def plan_attention(fusion: Fusion, values: Values) -> Iterator[Step]:
    node = fusion.anchor
    assert isinstance(node, Attention)
    mask_view = {} if node.mask is None else {"mask": node.mask}
    views = stack_views(node, {"q": node.q, "k": node.k, "v": node.v, **mask_view, "y": node.y})
    q, k, v, *mask = (values.array(name) for name in node.inputs)
    (*_, rows, depth), (*_, keys, width) = node.q.shape, node.v.shape
    yield Attend(
        note=make_note(fusion, values.graph), q=q, k=k, v=v, mask=mask[0] if mask else None,
        y=values.define_array(fusion.output), q_view=views["q"], k_view=views["k"], v_view=views["v"],
        mask_view=views.get("mask"), y_view=views["y"], scale=node.scale,
        reach=keys - 1 if node.diagonal is None else smallest(largest(node.diagonal, -rows), keys - 1),
        safe=node.safe, bfloat16=values.target.bfloat16 and rows != 1,
        scratch=(values.scratch_array(_scratch(rows, keys, depth, width, values.lanes), private=True),),
    )  # fmt: skip


def _scratch(rows: int, keys: int, depth: int, width: int, lanes: int) -> int:
    """CV_ATTENTION_SCRATCH of kernels/attention.h."""
    panel = GEMM_BLOCKS * lanes
    packed, padded = smallest(-(-keys // panel) * panel, GEMM_DEPTH), -(-width // panel) * panel
    return packed * (depth + padded) + rows * padded + 2 * (rows + lanes)


def emit_attention(step: Attend, w: Writer) -> str:
    w.headers.add("attention")
    (scratch,) = step.scratch
    *stack, keys, depth = step.k_view.shape
    rows, width = step.y_view.shape[-2:]
    sizes = joined((rows, keys, depth, width))
    declare_scratch(f"CV_ATTENTION_SCRATCH({sizes})", scratch, w)
    mask = {}
    if step.mask is not None and step.mask_view is not None:
        mask = write_view("mask", step.mask, step.mask_view, w)
    literal = fields(
        stack=f"{{{joined(stack)}}}", rows=rows, keys=keys, depth=depth, width=width,
        **write_view("q", step.q, step.q_view, w), **write_view("k", step.k, step.k_view, w),
        **write_view("v", step.v, step.v_view, w), **mask, **write_view("y", step.y, step.y_view, w),
        scale=number(step.scale), reach=step.reach, safe=int(step.safe),
    )  # fmt: skip
    name = f"cv_attend{'_bf16' * step.bfloat16}"
    none = write_sum_of_nothing(keys, step.y, w)
    return f"{none}  const cv_attention a = {literal};\n  {name}(t, &a, {w.pointer(scratch)});\n"


KERNEL = KernelKind(nodes=(Attention,), plan=plan_attention, emitters={Attend: emit_attention})
