"""Which taps of a convolution's kernel see the map, and which only padding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, Tensor


def seen_taps(node: Conv2d, graph: Graph, axis: int, out: int) -> range:
    """The taps along an axis (0: rows, 1: columns) that see the map from the output's number ``out``.

    They are neighbours, and none where the kernel sees only padding.
    """
    size, taps = graph.shape(node.inputs[0])[2 + axis], graph.shape(node.inputs[1])[2 + axis]
    start, dilation = out * node.stride[axis] - node.padding[axis], node.dilation[axis]
    first = max(-(start // dilation), 0)
    end = min(-((start - size) // dilation), taps)
    return range(first, max(end, first))


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
    nodes = tuple(smaller if n is node else n for n in graph.nodes)
    read = {name for n in nodes for name in n.inputs}
    constants = {n: c for n, c in graph.constants.items() if n in read} | {name: kept}
    tensors = {n: t for n, t in graph.tensors.items() if n in constants or n not in graph.constants}
    return replace(
        graph, nodes=nodes, tensors=tensors | {name: Tensor(name, kept.shape)}, constants=constants
    )


def _unseen(node: Conv2d, graph: Graph, axis: int) -> tuple[int, int]:
    """How many taps at both ends of a kernel's axis see only padding; one stays, and no padding below 0."""
    taps, outs = graph.shape(node.inputs[1])[2 + axis], graph.shape(node.output)[2 + axis]
    seen = [seen_taps(node, graph, axis, out) for out in (0, outs - 1)]
    before, after = seen[1].start, taps - seen[0].stop
    before = min(before, node.padding[axis] // node.dilation[axis], taps - 1)
    after = min(after, node.padding[2 + axis] // node.dilation[axis], taps - 1 - before)
    return max(before, 0), max(after, 0)
