"""Floating-point operations, as the field counts them: two per multiply-add."""

from __future__ import annotations

from math import prod

from convoy.graph.graph import Graph
from convoy.graph.ops import Attention, Conv2d, ConvTranspose2d, MatMul, Node, Product, Recurrent


def count_flops(node: Node, graph: Graph) -> int:
    """FLOPs of one node for one image.

    Convolutions, products and recurrent layers count two per multiply-add, an attention those of scores
    and values, masked ones too; every other op, biases and padding included, is bound by memory and counts
    nothing.
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
        case Product(a=a, y=y):
            return 2 * y.size * a.shape[-1]
        case Recurrent():
            return 2 * graph.tensors[node.inputs[0]].size * graph.shape(node.inputs[1])[0]
        case Attention(q=q, k=k, y=y):
            return 2 * (q.size * k.shape[-2] + y.size * k.shape[-2])
    return 0
