"""Which weights of a quantised network stay integers: those that kernels of bytes multiply."""

from __future__ import annotations

from collections.abc import Callable

from convoy.graph.bytes import prepare_bytes
from convoy.graph.columns import read_columns
from convoy.graph.graph import Graph
from convoy.graph.messages import describe
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, MatMul, Node
from convoy.graph.quantised import dequantize_constants, is_dequantised_constant
from convoy.graph.wide import halve_wide_weights
from convoy.kernels.conv2d.choose import choose_bytes, describe_estimates
from convoy.kernels.matmul_bytes import matmul_cycles
from convoy.kernels.registry import find_takers
from convoy.options import Options
from convoy.plan.cost import conversion_cycles
from convoy.plan.fuse import fuse
from convoy.report.decision import Report
from convoy.target import Target

_STEPS_OF_COLUMNS = 6
"""Padding, four slices, and what joins them (``graph/columns.py``)."""


def keep_integers(
    graph: Graph, target: Target, threads: int, options: Options, report: Report | None = None
) -> Graph:
    """The graph with float32 constants in place of ``Dequantize`` of others.

    ``report`` receives a ``Decision`` for each anchor that is faster as one of floats.
    """
    kept = _kept_weights(graph, target, threads, options)
    for node in _quantised_anchors(graph):
        if report is not None and node.inputs[1] not in kept:
            _report_floats(node, graph, target, threads, options, report)
    return dequantize_constants(graph, kept)


def halve_where_it_pays(
    graph: Graph, pays: Callable[[Node, Graph], bool], target: Target, threads: int, options: Options
) -> Graph:
    """The graph with two bytes for a wide weight where a kernel of bytes takes both, and is quicker.

    Which kernel takes a product is seen when it is fused: of an odd depth none does, or of too long sums.
    """
    tried = halve_wide_weights(graph, pays)
    if tried.nodes == graph.nodes:
        return graph
    prepared = prepare_bytes(tried)
    kept = _kept_weights(prepared, target, threads, options)
    taken = {node.output for node in _quantised_anchors(prepared) if node.inputs[1] in kept}
    return halve_wide_weights(graph, lambda node, graph: node.output in taken and pays(node, graph))


def read_columns_where_it_pays(graph: Graph, target: Target, threads: int, options: Options) -> Graph:
    """The graph with columns as channels where a convolution of one or two channels is quicker so."""
    tried = read_columns(graph, lambda node, graph: True)

    def pays(node: Conv2d, graph: Graph) -> bool:
        reading = tried.producer[node.output]
        assert isinstance(reading, Conv2d)
        before = choose_bytes(node, graph, target, threads, options, whole=False)
        after = choose_bytes(reading, tried, target, threads, options, whole=False)
        moved = 4 * tried.likely.tensors[reading.inputs[0]].size  # read and written twice, byte by byte
        made = moved / target.copy_rate / threads + _STEPS_OF_COLUMNS * target.step
        return after.int8 and after.cycles["direct int8"] + made < min(before.cycles.values(), default=0.0)

    return read_columns(graph, pays)


def _quantised_anchors(graph: Graph) -> list[Node]:
    """What multiplies quantised data by a quantised weight."""
    return [
        node
        for node in graph.nodes
        if isinstance(node, Conv2d | ConvTranspose2d | MatMul)
        and isinstance(graph.producer.get(node.inputs[0]), Dequantize)
        and is_dequantised_constant(node.inputs[1], graph)
    ]


def _kept_weights(graph: Graph, target: Target, threads: int, options: Options) -> set[str]:
    """The weights that kernels of bytes multiply."""
    weights = {node.inputs[1] for node in _quantised_anchors(graph)}
    if not weights:
        return weights
    fused = dequantize_constants(graph, weights)  # biases among them are floats
    fusions = fuse(fused, options.disabled_patterns, find_takers(fused, target, threads, options))
    return {node.output for fusion in fusions for node in fusion.dequantized} & weights


def halving_pays(target: Target, threads: int, options: Options) -> Callable[[Node, Graph], bool]:
    """Whether a product of bytes beats one of floats even with twice the data (``graph/wide.py``)."""

    def pays(node: Node, graph: Graph) -> bool:
        if isinstance(node, Conv2d):
            cycles = choose_bytes(node, graph, target, threads, options, whole=False).cycles
        elif isinstance(node, MatMul):
            cycles = matmul_cycles(node, graph, target, threads)
        else:
            return False
        data = graph.likely.tensors[node.inputs[0]]
        copied = conversion_cycles(data.size, 0, target) / threads + target.step
        of_bytes = [cycles[name] for name in ("direct int8", "matmul int8") if name in cycles]
        of_floats = [cycles[name] for name in cycles if name.endswith("with conversions")]
        return bool(of_bytes and of_floats) and 2 * min(of_bytes) + copied <= min(of_floats)

    return pays


def steps_pay(target: Target, threads: int, options: Options) -> Callable[[Node, Graph], bool]:
    """Whether a convolution of steps that a run computes is quicker of bytes (``graph/dynamic.py``).

    As floats they are there, so nothing is converted; as bytes they are padded before.
    """

    def pays(node: Node, graph: Graph) -> bool:
        assert isinstance(node, Conv2d)
        choice = choose_bytes(node, graph, target, threads, options, whole=False)
        of_bytes = [cycles for name, cycles in choice.cycles.items() if name.endswith("int8")]
        of_floats = [cycles for name, cycles in choice.cycles.items() if name.endswith("with conversions")]
        x, y = (graph.likely.tensors[name].size for name in (node.inputs[0], node.output))
        converted = conversion_cycles(x, y, target) / threads + 2 * target.step
        padded = conversion_cycles(x, 0, target) / threads + target.step if any(node.padding) else 0.0
        return choice.int8 and min(of_bytes) + padded <= min(of_floats) - converted

    return pays


def _report_floats(
    node: Node, graph: Graph, target: Target, threads: int, options: Options, report: Report
) -> None:
    """A ``Decision`` where there is a kernel of bytes, and one of floats is faster."""
    if isinstance(node, Conv2d | ConvTranspose2d):
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
