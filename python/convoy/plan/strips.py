"""The step that runs a chain of kernels strip by strip (``kernels/strips.h``), and how it is planned.

Its members are planned as steps of their own; only the results that pass between them lie in each
thread's scratch, as many rows as a strip needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Pool2d, Unary
from convoy.plan.convolution import plan_conv2d
from convoy.plan.elementwise import plan_elementwise
from convoy.plan.fuse import Group
from convoy.plan.maps import map_size
from convoy.plan.movement import plan_pool
from convoy.plan.steps import Array, Operand, Step
from convoy.plan.values import Values
from convoy.target import Target

MOST_MEMBERS = 8
"""CV_STRIP_MEMBERS."""


@dataclass(frozen=True)
class Window:
    """For rows [a, b) of its result a member reads rows a·stride - pad to (b-1)·stride - pad + reach."""

    stride: int = 1
    pad: int = 0
    reach: int = 0

    @property
    def one_row(self) -> bool:
        """Row by row, every row once."""
        return self == Window()

    @property
    def overlap(self) -> int:
        """Rows that neighbouring ranges of the result both read."""
        return max(self.reach + 1 - self.stride, 0)

    def rows(self, count: int) -> int:
        """Rows read for ``count`` rows."""
        return (count - 1) * self.stride + self.reach + 1


@dataclass(frozen=True)
class Estimate:
    """Cycles of the busiest thread: one group after another, and together in strips of ``rows`` rows."""

    apart: float
    together: float
    rows: int

    @property
    def saved(self) -> float:
        return self.apart - self.together


@dataclass(frozen=True)
class Chain:
    """Groups that run together strip by strip, where the last of them stood."""

    groups: tuple[Group, ...]
    estimate: Estimate

    @property
    def reason(self) -> str:
        e = self.estimate
        return (
            f"{e.rows} rows at a time; estimated kilocycles: one by one {e.apart / 1e3:.0f}, "
            f"in strips {e.together / 1e3:.0f}"
        )


@dataclass(frozen=True)
class Member:
    """``step`` works on the rows it is told; its maps are whole ones, or strips."""

    step: Step
    window: Window
    x_height: int
    height: int
    """Rows of its whole input and result."""


@dataclass(frozen=True, kw_only=True)
class Strips(Step):
    """``scratch`` holds the strips; ``y`` is the last member's."""

    members: tuple[Member, ...]
    rows: int

    @property
    def method(self) -> str:
        return f"strips of {self.rows} rows"

    def is_strip(self, operand: Operand) -> bool:
        return any(operand.buffer == strip.buffer for strip in self.scratch)

    @property
    def reads(self) -> tuple[Operand, ...]:
        return tuple(o for m in self.members for o in m.step.reads if not self.is_strip(o))


def row_window(group: Group, graph: Graph) -> Window:
    """The rows a member reads of its input."""
    node = group.anchor
    if isinstance(node, Conv2d):
        kernel = graph.shape(node.inputs[1])[2]
    elif isinstance(node, Pool2d):
        kernel = node.kernel[0]
    else:
        return Window()
    return Window(node.stride[0], node.padding[0], (kernel - 1) * node.dilation[0])


def strip_heights(windows: Sequence[Window], rows: int) -> list[int]:
    """Rows of the strips between members, for ``rows`` rows of the last result."""
    heights: list[int] = []
    for window in reversed(windows[1:]):
        rows = window.rows(rows)
        heights.append(rows)
    return heights[::-1]


def plan_strips(chain: Chain, values: Values, target: Target) -> None:
    """Append the step of a chain, after what brings its inputs into their layouts."""
    graph, groups = values.graph, chain.groups
    windows = [row_window(group, graph) for group in groups]
    scratch: list[Array] = []
    for group, height in zip(groups, strip_heights(windows, chain.estimate.rows), strict=False):
        strip = values.define_strip(group.output, height)
        scratch.append(Array(strip.buffer, 0, (map_size(strip),)))
    members: list[Member] = []
    for group, window in zip(groups, windows, strict=True):
        step = _plan_member(group, values, target)
        height = graph.shape(group.output)[2]
        x_height = height if window.one_row else graph.shape(group.anchor.inputs[0])[2]
        members.append(Member(step, window, x_height, height))
    values.steps.append(
        Strips(
            note=", then ".join(m.step.note for m in members), y=members[-1].step.y,
            scratch=tuple(scratch), members=tuple(members), rows=chain.estimate.rows,
        )
    )  # fmt: skip


def _plan_member(group: Group, values: Values, target: Target) -> Step:
    match group.anchor:
        case Conv2d():
            plan_conv2d(group, values, target, threads=1, whole=False)
        case Pool2d():
            plan_pool(group, values)
        case Unary() | Binary():
            plan_elementwise(group, values)
        case other:
            raise AssertionError(f"{other} is no member of a chain")
    return values.steps.pop()
