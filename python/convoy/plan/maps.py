"""The geometry of blocked maps, and which layout each tensor lives in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from convoy.graph.graph import Graph
from convoy.graph.ops import (
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    ConvTranspose2d,
    Lrn,
    Node,
    Pair,
    Pool2d,
    Reduce,
    Resize,
    Sides,
    Slice,
    Unary,
)
from convoy.plan.fuse import Group
from convoy.plan.steps import Map

BLOCKED_ONLY = (Conv2d, ConvTranspose2d, Pool2d, Lrn, Resize, ChannelShuffle)
CACHE_LINE = 16
"""floats"""


def image_shape(shape: Sequence[int]) -> tuple[int, int, int] | None:
    """C, H, W of a tensor that can be a map: [1, C, H, W], or [1, C] as 1x1 pixels."""
    if len(shape) == 4 and shape[0] == 1:
        return shape[1], shape[2], shape[3]
    if len(shape) == 2 and shape[0] == 1:
        return shape[1], 1, 1
    return None


def make_map(
    buffer: int, channels: int, height: int, width: int, lanes: int, halo: Sides = (0, 0, 0, 0)
) -> Map:
    """A map at the start of its buffer.

    A plane is an odd number of cache lines: with a power of two, pixel (y, x) of every channel
    block would fall into the same set of the L1 cache.
    """
    top, left, bottom, right = halo
    row = (left + width + right) * lanes
    plane = (top + height + bottom) * row
    lines = -(-plane // CACHE_LINE)
    if lanes > 1 and height * width > 1:
        plane = (lines | 1) * CACHE_LINE
    return Map(buffer, top * row + left * lanes, channels, height, width, lanes, plane, row, lanes, halo)


def map_size(m: Map) -> int:
    """Floats a buffer needs for the map and its halo; a tile may read a vector past the end."""
    return m.blocks * m.plane + CACHE_LINE


def operand_halo(node: Conv2d | ConvTranspose2d, graph: Graph, extent: Pair | None = None) -> Sides:
    """The zeros a convolution reads around its input map: top, left, bottom, right.

    ``extent``: rows and columns of the output that are computed, where those are more than it has.
    """
    size = graph.shape(node.inputs[0])[2:]
    out = extent or graph.shape(node.output)[2:]
    kernel = graph.shape(node.inputs[1])[2:]
    if isinstance(node, ConvTranspose2d):
        spans = [
            _phase_reach(size[i], out[i], kernel[i], node.stride[i], node.dilation[i], node.padding[i])
            for i in (0, 1)
        ]
    else:
        spans = []
        for i in (0, 1):
            last = (out[i] - 1) * node.stride[i] + (kernel[i] - 1) * node.dilation[i] - node.padding[i]
            spans.append((max(node.padding[i], 0), max(last + 1 - size[i], 0)))
    return spans[0][0], spans[1][0], spans[0][1], spans[1][1]


def _phase_reach(size: int, out: int, kernel: int, stride: int, dilation: int, pad: int) -> tuple[int, int]:
    """How far before and past the input any phase of a transposed convolution reads."""
    before = after = 0
    for phase in range(min(stride, out)):
        count = -(-(out - phase) // stride)
        for k in range(kernel):
            if (phase + pad - k * dilation) % stride == 0:
                first = (phase + pad - k * dilation) // stride
                before = max(before, -first)
                after = max(after, first + count - size)
    return before, after


def widest(a: Sides, b: Sides) -> Sides:
    return max(a[0], b[0]), max(a[1], b[1]), max(a[2], b[2]), max(a[3], b[3])


def choose_layouts(graph: Graph, groups: Sequence[Group]) -> dict[str, bool]:
    """True for each tensor that is made in the blocked layout, False for row-major.

    Ops that only exist blocked make blocked maps; an op that exists in both follows its inputs.
    """
    blocked = dict.fromkeys(graph.inputs, False)
    for group in groups:
        blocked[group.output] = _wants_blocked(group, graph, blocked)
    return blocked


def _wants_blocked(group: Group, graph: Graph, blocked: dict[str, bool]) -> bool:
    node: Node = group.anchor
    if isinstance(node, BLOCKED_ONLY):
        return True
    shape = graph.shape(group.output)
    if isinstance(node, Reduce):
        x = graph.shape(node.inputs[0])
        return len(x) == 4 and node.axes == (2, 3) and image_shape(x) is not None
    followers = [n for n in group.reads if blocked.get(n)]
    if len(shape) != 4 or shape[0] != 1 or not followers:
        return False
    if isinstance(node, (Unary, Binary)):
        return all(_fits_map(graph.shape(n), shape, n in graph.constants) for n in group.reads)
    if isinstance(node, (Concat, Slice)):
        return node.axis == 1 and (not isinstance(node, Slice) or node.step == 1)
    return False


Role = Literal["map", "channel", "pixel", "scalar"]


def operand_role(shape: Sequence[int], out: Sequence[int]) -> Role | None:
    """How an operand of a blocked chain meets a pixel of the output; None where it cannot."""
    c, h, w = ((1,) * (4 - len(shape)) + tuple(shape))[1:] if len(shape) <= 4 else (0, 0, 0)
    full = (c == out[1], h == out[2], w == out[3])
    if c == h == w == 1:
        return "map" if tuple(out[1:]) == (1, 1, 1) else "scalar"
    if full == (True, True, True):
        return "map"
    if full[0] and h == w == 1:
        return "channel"
    if c == 1 and full[1:] == (True, True):
        return "pixel"
    return None


def _fits_map(shape: Sequence[int], out: Sequence[int], constant: bool) -> bool:
    role = operand_role(shape, out)
    if len(shape) < 4 and not constant:
        return False
    return role in ("map", "channel", "pixel") or (role == "scalar" and constant)
