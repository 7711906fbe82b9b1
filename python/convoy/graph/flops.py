"""Floating-point operations, as the field counts them: two per multiply-add."""

from __future__ import annotations

from math import prod

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d, MatMul, Node


def count_flops(node: Node, graph: Graph) -> int:
    """FLOPs of one node for one image.

    Convolutions and matmuls count two per multiply-add of their weights; every other op, biases
    and padding included, is bound by memory and counts nothing.
    """
    match node:
        case Conv2d():
            _, *taps = graph.shape(node.inputs[1])
            return 2 * graph.tensors[node.output].size * prod(taps)
        case ConvTranspose2d():
            _, *taps = graph.shape(node.inputs[1])
            return 2 * graph.tensors[node.inputs[0]].size * prod(taps)
        case MatMul():
            return 2 * graph.tensors[node.output].size * graph.shape(node.inputs[0])[-1]
    return 0
