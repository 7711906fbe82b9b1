"""Local response normalisation (``csrc/kernels/lrn.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, number
from convoy.graph.ops import Lrn
from convoy.kernels.kernel import KernelKind, always
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Map
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


@dataclass(frozen=True, kw_only=True)
class LrnMap(Step):
    x: Map
    y: Map
    size: int
    alpha: float
    beta: float
    bias: float


def plan_lrn(fusion: Fusion, values: Values) -> Iterator[Step]:
    node = fusion.anchor
    assert isinstance(node, Lrn)
    x = values.map(node.inputs[0])
    yield LrnMap(
        note=make_note(fusion, values.graph), x=x, y=values.define_map(fusion.output), size=node.size,
        alpha=node.alpha, beta=node.beta, bias=node.bias,
    )  # fmt: skip


def emit_lrn(step: LrnMap, w: Writer) -> str:
    w.headers.add("lrn")
    return (
        f"{w.maps(step.x, step.y)}  cv_lrn(t, y, x, {step.size}, {number(step.alpha)}, "
        f"{number(step.beta)}, {number(step.bias)});\n"
    )


KERNEL = KernelKind(nodes=(Lrn,), plan=plan_lrn, emitters={LrnMap: emit_lrn}, wants_map=always)
