"""Which weights of a quantised network stay integers: those that kernels of bytes multiply."""

from __future__ import annotations

from convoy.graph.graph import Graph
from convoy.graph.messages import describe
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, MatMul, Node
from convoy.graph.quantised import dequantize_constants, is_dequantised_constant
from convoy.graph.sizes import is_open
from convoy.kernels.conv2d.choose import choose_bytes, describe_estimates
from convoy.kernels.matmul_bytes import matmul_cycles
from convoy.kernels.registry import find_takers
from convoy.options import Options
from convoy.plan.fuse import fuse
from convoy.report.decision import Report
from convoy.target import Target


def keep_integers(
    graph: Graph, target: Target, threads: int, options: Options, report: Report | None = None
) -> Graph:
    """The graph with float32 constants in place of ``Dequantize`` of others.

    ``report`` receives a ``Decision`` for each anchor that is faster as one of floats.
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
        if report is not None and node.inputs[1] in weights - kept:
            _report_floats(node, graph, target, threads, options, report)
    return dequantize_constants(graph, kept)


def _report_floats(
    node: Node, graph: Graph, target: Target, threads: int, options: Options, report: Report
) -> None:
    """A ``Decision`` where there is a kernel of bytes, and one of floats is faster."""
    if isinstance(node, Conv2d | ConvTranspose2d):
        if is_open(graph.shape(node.output)):  # no kernel of bytes takes it
            return
        choice = choose_bytes(node, graph, target, threads, options, whole=False)
        if choice.int8 or not choice.cycles:
            return
        cycles, reason = choice.cycles, choice.reason
    elif isinstance(node, MatMul):
        cycles = matmul_cycles(node, graph, target, threads)
        if cycles["matmul int8"] <= cycles["matmul with conversions"]:
            return
        reason = describe_estimates(cycles)
    else:
        return
    report.add(describe(node), "plan", min(cycles, key=lambda name: cycles[name]), reason)
