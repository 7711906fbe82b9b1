"""Which taps of a convolution's kernel see the map, and which only padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convoy.graph.graph import Graph, drop_unread
from convoy.graph.ops import Conv2d, Tensor
from convoy.graph.sizes import is_open


def outputs_through(node: Conv2d, graph: Graph, axis: int, tap: int) -> range:
    """The rows (axis 0) or columns (1) of the output that see the map through a tap: a range."""
    size, outs = graph.shape(node.inputs[0])[2 + axis], graph.shape(node.output)[2 + axis]
    offset, stride = tap * node.dilation[axis] - node.padding[axis], node.stride[axis]
    first = max(-(offset // stride), 0)
    return range(first, max(min(-((offset - size) // stride), outs), first))


def drop_unseen_taps(graph: Graph) -> Graph:
    """The same function with smaller kernels: a tap is cut off that sees only padding from everywhere.

    A 3x3 whose dilation is as wide as its map becomes a 1x1.  Kernels with weights that are not finite stay
    as they are, for zero times infinity is NaN.
    """
    for node in graph.nodes:
        if isinstance(node, Conv2d) and node.inputs[1] in graph.constants:
            graph = _cut(node, graph)
    return graph


def _cut(node: Conv2d, graph: Graph) -> Graph:
    weights = graph.constants[node.inputs[1]]
    (top, bottom), (left, right) = (_unseen(node, graph, axis) for axis in (0, 1))
    if not (top or bottom or left or right) or not np.isfinite(weights).all():
        return graph
    rows, columns = weights.shape[2:]
    kept = np.ascontiguousarray(weights[:, :, top : rows - bottom, left : columns - right])
    name = f"{node.output}.taps"
    pads, (dilation_h, dilation_w) = node.padding, node.dilation
    padding = (
        pads[0] - top * dilation_h, pads[1] - left * dilation_w,
        pads[2] - bottom * dilation_h, pads[3] - right * dilation_w,
    )  # fmt: skip
    smaller = replace(node, inputs=(node.inputs[0], name, *node.inputs[2:]), padding=padding)
    tensor = Tensor(name, kept.shape, graph.dtype(node.inputs[1]))
    return drop_unread(
        replace(
            graph,
            nodes=tuple(smaller if n is node else n for n in graph.nodes),
            tensors={**graph.tensors, name: tensor},
            constants={**graph.constants, name: kept},
        )
    )


def _unseen(node: Conv2d, graph: Graph, axis: int) -> tuple[int, int]:
    """How many taps at both ends of a kernel's axis see only padding; one stays, and no padding below 0."""
    if is_open(graph.shape(node.inputs[0])[2 + axis]):
        return 0, 0
    taps = graph.shape(node.inputs[1])[2 + axis]
    seen = [tap for tap in range(taps) if outputs_through(node, graph, axis, tap)] or [0]
    before = min(seen[0], node.padding[axis] // node.dilation[axis])
    return before, min(taps - 1 - seen[-1], node.padding[2 + axis] // node.dilation[axis])
