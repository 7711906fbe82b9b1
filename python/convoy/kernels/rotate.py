"""Rotary embeddings: pairs of numbers, turned (``csrc/kernels/rotate.h``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from convoy.codegen.writer import Writer, fields, joined
from convoy.graph.ops import Rotate
from convoy.graph.views import View
from convoy.kernels.kernel import KernelKind
from convoy.kernels.note import make_note
from convoy.kernels.strided import stack_views, write_view
from convoy.kernels.values import Values
from convoy.plan.buffers import Array
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step


@dataclass(frozen=True, kw_only=True)
class Turn(Step):
    """Views [stack, 2, pairs] of all four."""

    x: Array
    cos: Array
    sin: Array
    y: Array
    x_view: View
    cos_view: View
    sin_view: View
    y_view: View


def plan_rotate(fusion: Fusion, values: Values) -> Iterator[Step]:
    node = fusion.anchor
    assert isinstance(node, Rotate)
    views = stack_views(node, {"x": node.x, "cos": node.cos, "sin": node.sin, "y": node.y})
    x, cos, sin = (values.array(name) for name in node.inputs)
    yield Turn(
        note=make_note(fusion, values.graph), x=x, cos=cos, sin=sin, y=values.define_array(fusion.output),
        x_view=views["x"], cos_view=views["cos"], sin_view=views["sin"], y_view=views["y"],
    )  # fmt: skip


def emit_turn(step: Turn, w: Writer) -> str:
    w.headers.add("rotate")
    *stack, _, pairs = step.x_view.shape
    literal = fields(
        stack=f"{{{joined(stack)}}}", pairs=pairs, **write_view("x", step.x, step.x_view, w),
        **write_view("cos", step.cos, step.cos_view, w), **write_view("sin", step.sin, step.sin_view, w),
        **write_view("y", step.y, step.y_view, w),
    )  # fmt: skip
    return f"  const cv_rotation r = {literal};\n  cv_rotate(t, &r);\n"


KERNEL = KernelKind(nodes=(Rotate,), plan=plan_rotate, emitters={Turn: emit_turn})
