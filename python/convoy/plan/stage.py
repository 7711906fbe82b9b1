"""What a group costs as a member of a chain, row by row, and what it would cost by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Pool2d, Unary
from convoy.plan.algorithm import Choice
from convoy.plan.cost import EFFICIENCY
from convoy.plan.fuse import Group
from convoy.plan.maps import image_shape, operand_role
from convoy.plan.strips import Window, row_window
from convoy.plan.tiles import choose_tiling
from convoy.target import Target

DEPTHWISE_TAP_CYCLES = 0.6
"""Of a vector of the result, a tap; measured in cache like the others (Cascade Lake, 2026-11-21)."""
POOL_TAP_CYCLES = 1.0
ELEMENTWISE_CYCLES = 2.0
"""Of a vector, an operation or an operand."""
ACTIVATION_CYCLES = 16.0
"""Of a vector, an activation of an epilogue that is no clamp."""
CLAMPS = ("relu", "clip")


@dataclass(frozen=True)
class Stage:
    """A group that can be a member of a chain."""

    group: Group
    position: int
    """In the running order of groups."""
    sources: tuple[str, ...]
    """Inputs that another stage may make for it row by row."""
    window: Window
    x_height: int
    height: int
    x_row_bytes: int
    row_bytes: int
    """Of one row of its input and of its result, all channels."""
    weight_bytes: int
    row_cycles: float
    """To compute a row of the result in a strip."""
    cycles: float
    """To compute all of it by itself, on one thread."""


def make_stage(
    position: int, group: Group, graph: Graph, blocked: Mapping[str, bool], choices: Mapping[str, Choice],
    target: Target,
) -> Stage | None:  # fmt: skip
    """The group as a member of a chain; None where it cannot be one."""
    node, shape = group.anchor, image_shape(graph.shape(group.output))
    if not blocked[group.output] or shape is None:
        return None
    _, height, width = shape
    out_blocks = -(-shape[0] // target.lanes)
    vectors = out_blocks * width
    weights = 0
    if isinstance(node, Conv2d):
        choice = choices[node.output]
        if choice.algorithm == "winograd":
            return None
        _, group_in, kh, kw = graph.shape(node.inputs[1])
        sources: tuple[str, ...] = (node.inputs[0],)
        if choice.algorithm == "depthwise":
            weights = out_blocks * target.lanes * kh * kw * 4
            row_cycles = vectors * (kh * kw * DEPTHWISE_TAP_CYCLES + 1)
            cycles = height * row_cycles
        else:
            weights = out_blocks * target.lanes * group_in * kh * kw * 4
            products = group_in * kh * kw / EFFICIENCY
            row_cycles = products * choose_tiling(width, out_blocks, target).cycles
            cycles = height * row_cycles
            if row_window(group, graph).one_row and kw == 1:  # by itself it may take the map as one row
                cycles = min(cycles, products * choose_tiling(height * width, out_blocks, target).cycles)
    elif isinstance(node, Pool2d):
        sources = (node.inputs[0],)
        row_cycles = vectors * node.kernel[0] * node.kernel[1] * POOL_TAP_CYCLES
        cycles = height * row_cycles
    elif isinstance(node, (Unary, Binary)):
        out = graph.shape(group.output)
        sources = tuple(n for n in group.reads if operand_role(graph.shape(n), out) == "map")
        row_cycles = vectors * (len(group.nodes) + len(sources)) * ELEMENTWISE_CYCLES
        cycles = height * row_cycles
    else:
        return None
    activations = sum(act is not None and act.kind not in CLAMPS for act in (group.inner, group.outer))
    row_cycles += activations * vectors * ACTIVATION_CYCLES
    cycles += activations * vectors * ACTIVATION_CYCLES * height
    sources = tuple(n for n in sources if blocked.get(n) and n != group.residual)
    x = image_shape(graph.shape(node.inputs[0] if not isinstance(node, (Unary, Binary)) else group.output))
    assert x is not None
    lane_bytes = target.lanes * 4
    return Stage(
        group=group, position=position, sources=sources, window=row_window(group, graph),
        x_height=x[1], height=height, x_row_bytes=-(-x[0] // target.lanes) * x[2] * lane_bytes,
        row_bytes=vectors * lane_bytes, weight_bytes=weights, row_cycles=row_cycles, cycles=cycles,
    )  # fmt: skip
