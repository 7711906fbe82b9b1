"""Operands that a kernel reads and writes by strides (``csrc/kernels/strides.h``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from convoy.codegen.writer import Writer, joined
from convoy.errors import GraphError
from convoy.graph.messages import describe
from convoy.graph.ops import Node
from convoy.graph.views import View
from convoy.plan.buffers import Array

STACK = 4
"""CV_STACK: axes before the last two that the kernels know."""


def stack_views(node: Node, views: Mapping[str, View]) -> dict[str, View]:
    """The views with ``STACK`` axes before the last two; neighbours that are one in all of them are merged.

    Raises
    ------
    GraphError
        If there are more of them.
    """
    lead = next(iter(views.values())).shape[:-2]
    axes = [axis for axis, length in enumerate(lead) if length > 1]
    parts: list[list[int]] = [[axis] for axis in axes[:1]]
    for before, axis in pairwise(axes):
        joins = all(view.strides[before] == view.strides[axis] * lead[axis] for view in views.values())
        if joins:
            parts[-1].append(axis)
        else:
            parts.append([axis])
    if len(parts) > STACK:
        problem = f"expected at most {STACK} axes of matrices, got {[lead[axis] for axis in axes]}"
        raise GraphError("plan", describe(node), problem, "leave the op to TVM")
    return {role: _merge(view, parts) for role, view in views.items()}


def _merge(view: View, parts: Sequence[Sequence[int]]) -> View:
    missing = STACK - len(parts)
    shape, strides = [1] * missing, [0] * missing
    for part in parts:
        length = 1
        for axis in part:
            length *= view.shape[axis]
        shape.append(length)
        strides.append(view.strides[part[-1]])
    # an axis of length 1 has any stride: that of neighbours is the fastest
    last = [1 if n == 1 else s for n, s in zip(view.shape[-2:], view.strides[-2:], strict=True)]
    return View((*shape, *view.shape[-2:]), (*strides, *last), view.offset)


def write_view(role: str, x: Array, view: View, w: Writer) -> dict[str, str]:
    """The members of a struct for an operand: its first element and ``cv_strides``."""
    offset = f" + {view.offset}" if view.offset else ""
    *stack, row, column = view.strides
    return {role: f"{w.pointer(x)}{offset}", f"{role}_strides": f"{{{{{joined(stack)}}}, {row}, {column}}}"}
