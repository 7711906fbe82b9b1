"""Softmax along an axis (``csrc/kernels/softmax.h``)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer
from convoy.graph.ops import Softmax
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.values import Values
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


@dataclass(frozen=True, kw_only=True)
class SoftmaxArray(Step):
    """Along the middle axis of [outer, axis, inner]."""

    x: Array
    outer: int
    axis: int
    inner: int
    log: bool


def plan_softmax(fusion: Fusion, values: Values) -> Iterator[Step]:
    node, graph = fusion.anchor, values.graph
    assert isinstance(node, Softmax)
    shape = graph.shape(node.inputs[0])
    yield SoftmaxArray(
        note=make_note(fusion, graph), x=values.array(node.inputs[0]),
        y=values.define_array(fusion.output), outer=math.prod(shape[: node.axis]), axis=shape[node.axis],
        inner=math.prod(shape[node.axis + 1 :]), log=node.log,
    )  # fmt: skip


def emit_softmax(step: SoftmaxArray, w: Writer) -> str:
    w.headers.add("softmax")
    return (
        f"  cv_softmax(t, {w.pointer(step.y)}, {w.pointer(step.x)}, {step.outer}, {step.axis}, "
        f"{step.inner}, {int(step.log)});\n"
    )


KERNEL = KernelKind(nodes=(Softmax,), plan=plan_softmax, emitters={SoftmaxArray: emit_softmax})
