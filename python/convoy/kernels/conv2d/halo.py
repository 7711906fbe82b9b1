"""The zeros a convolution reads around its input."""

from __future__ import annotations

from collections.abc import Mapping

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d, Node, Pair, Sides
from convoy.graph.sizes import bounds, is_open, largest
from convoy.kernels.conv2d.choose import Choice
from convoy.plan.maps import NO_HALO

OPEN_EXTENT = 1
"""Rows and columns that Winograd tiles compute beyond an output, at most, where the last ones have an even
number of them."""


def find_halo(node: Node, graph: Graph, choices: Mapping[str, Choice]) -> Sides:
    """Around the input of any op, under the algorithm chosen for it."""
    if not isinstance(node, (Conv2d, ConvTranspose2d)) or choices[node.output].algorithm == "tap by tap":
        return NO_HALO
    height, width = graph.shape(node.output)[2:]
    schedule = choices[node.output].schedule
    if schedule and is_open((height, width)):
        top, left, bottom, right = operand_halo(node, graph, (height, width))
        return top, left, bottom + OPEN_EXTENT, right + OPEN_EXTENT
    return operand_halo(node, graph, schedule.extent(height, width) if schedule else (height, width))


def operand_halo(node: Conv2d | ConvTranspose2d, graph: Graph, out: Pair) -> Sides:
    """The zeros a convolution reads around its input map: top, left, bottom, right.

    ``out``: rows and columns of the output that are computed, which may be more than it has.
    """
    size = graph.shape(node.inputs[0])[2:]
    kernel = graph.shape(node.inputs[1])[2:]
    if isinstance(node, ConvTranspose2d):
        spans = [
            _phase_reach(size[i], out[i], kernel[i], node.stride[i], node.dilation[i], node.padding[i])
            for i in (0, 1)
        ]
    else:
        spans = []
        for i in (0, 1):
            if is_open(size[i]):
                spans.append((_most(node.padding[i]), _most(node.padding[i + 2])))
                continue
            last = (out[i] - 1) * node.stride[i] + (kernel[i] - 1) * node.dilation[i] - node.padding[i]
            spans.append((max(node.padding[i], 0), max(last + 1 - size[i], 0)))
    return spans[0][0], spans[1][0], spans[0][1], spans[1][1]


def _most(padding: int) -> int:
    """The widest that padding is at any call."""
    return max(int(bounds(padding)[1]), 0)


def _phase_reach(size: int, out: int, kernel: int, stride: int, dilation: int, pad: int) -> tuple[int, int]:
    """How far before and past the input any phase of a transposed convolution reads."""
    before = after = 0
    for phase in range(stride if is_open(out) else min(stride, out)):
        count = -(-(out - phase) // stride)
        for k in range(kernel):
            if (phase + pad - k * dilation) % stride == 0:
                first = (phase + pad - k * dilation) // stride
                before = max(before, -first)
                after = largest(after, first + count - size)
    return before, after
