"""Which weights of a quantised network stay integers: those that kernels of bytes multiply."""

from __future__ import annotations

from convoy.graph.graph import Graph
from convoy.graph.messages import describe
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, MatMul
from convoy.graph.quantised import dequantize_constants, is_dequantised_constant
from convoy.kernels.conv2d.choose import choose_bytes
from convoy.kernels.registry import find_takers
from convoy.options import Options
from convoy.plan.fuse import fuse
from convoy.report.decision import Report
from convoy.target import Target


def keep_integers(
    graph: Graph, target: Target, threads: int, options: Options, report: Report | None = None
) -> Graph:
    """The graph with float32 constants in place of ``Dequantize`` of others.

    ``report`` receives a ``Decision`` for each convolution that is faster as one of floats.
    """
    anchors = [node for node in graph.nodes if isinstance(node, Conv2d | ConvTranspose2d | MatMul)]
    quantised = [node for node in anchors if isinstance(graph.producer.get(node.inputs[0]), Dequantize)]
    weights = {node.inputs[1] for node in quantised if is_dequantised_constant(node.inputs[1], graph)}
    graph = dequantize_constants(graph, weights)
    if not weights:
        return graph
    fusions = fuse(graph, options.disabled_patterns, find_takers(graph, target, threads, options))
    kept = {node.output for fusion in fusions for node in fusion.dequantized} & weights
    for node in quantised:
        if report is not None and isinstance(node, Conv2d) and node.inputs[1] in weights - kept:
            choice = choose_bytes(node, graph, target, threads, options)
            if not choice.int8 and choice.cycles:
                report.add(
                    describe(node),
                    "plan",
                    min(choice.cycles, key=lambda name: choice.cycles[name]),
                    choice.reason,
                )
    return dequantize_constants(graph, kept)
