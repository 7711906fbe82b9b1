"""Which weights of a quantised network stay integers: those that kernels of bytes multiply."""

from __future__ import annotations

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, MatMul
from convoy.graph.quantised import dequantize_constants, is_dequantised_constant
from convoy.kernels.registry import find_takers
from convoy.options import Options
from convoy.plan.fuse import fuse
from convoy.target import Target


def keep_integers(graph: Graph, target: Target, threads: int, options: Options) -> Graph:
    """The graph with float32 constants in place of ``Dequantize`` of others."""
    anchors = [node for node in graph.nodes if isinstance(node, Conv2d | ConvTranspose2d | MatMul)]
    quantised = [node for node in anchors if isinstance(graph.producer.get(node.inputs[0]), Dequantize)]
    weights = {node.inputs[1] for node in quantised if is_dequantised_constant(node.inputs[1], graph)}
    graph = dequantize_constants(graph, weights)
    if not weights:
        return graph
    fusions = fuse(graph, options.disabled_patterns, find_takers(graph, target, threads, options))
    return dequantize_constants(graph, {node.output for f in fusions for node in f.dequantized} & weights)
