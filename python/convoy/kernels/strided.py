"""Operands that a kernel reads and writes by strides (``csrc/kernels/strides.h``)."""

from __future__ import annotations

from collections.abc import Mapping

from convoy.codegen.writer import Writer, joined
from convoy.errors import GraphError
from convoy.graph.messages import describe
from convoy.graph.ops import Node
from convoy.graph.sizes import bounds, is_open
from convoy.graph.views import View, join_axes
from convoy.plan.buffers import Array

STACK = 4
"""CV_STACK: axes before the last two that the kernels know."""


def stack_views(node: Node, views: Mapping[str, View]) -> dict[str, View]:
    """The views with ``STACK`` axes before the last two; those that are one in all of them are joined.

    Parameters
    ----------
    views : Mapping[str, View]
        By role; the last is of what the node makes.

    Raises
    ------
    GraphError
        If there are more of them.
    """
    found = join_axes(list(views.values()))
    lead = found[0].shape[:-2]
    if len(lead) > STACK:
        problem = f"expected at most {STACK} axes of matrices, got {list(lead)}"
        raise GraphError("plan", describe(node), problem, "leave the op to TVM")
    return {role: _pad(view) for role, view in zip(views, found, strict=True)}


def _pad(view: View) -> View:
    missing = STACK + 2 - len(view.shape)
    # an axis of length 1 has any stride: that of neighbours is the fastest
    last = [1 if n == 1 else s for n, s in zip(view.shape[-2:], view.strides[-2:], strict=True)]
    return View((*[1] * missing, *view.shape), (*[0] * missing, *view.strides[:-2], *last), view.offset)


def write_view(role: str, x: Array, view: View, w: Writer) -> dict[str, str]:
    """The members of a struct for an operand: its first element and ``cv_strides``."""
    offset = f" + {view.offset}" if view.offset != 0 else ""
    *stack, row, column = view.strides
    return {role: f"{w.pointer(x)}{offset}", f"{role}_strides": f"{{{{{joined(stack)}}}, {row}, {column}}}"}


def declare_scratch(need: str, scratch: Array, w: Writer) -> None:
    """See that scratch is as large as C says, where both are numbers."""
    if not is_open(scratch.size):
        w.declare(f'_Static_assert({need} <= {scratch.size}, "scratch is too small");')


def write_sum_of_nothing(terms: int, y: Array, w: Writer, zero: int = 0) -> str:
    """The zeros that a step makes where a call has no terms to add up; "" where each has some.

    ``zero`` is the byte that stands for one.
    """
    if bounds(terms)[0] >= 1:
        return ""
    w.headers.add("tensor")  # it includes memset
    clear = f"memset({w.pointer(y)}, {zero}, (size_t)({y.bytes}));"
    return f"  if ({terms} == 0) {{\n    if (t.id == 0) {clear}\n    return;\n  }}\n"
