"""Elementwise chains between bytes: the results of all 256 where they read one tensor, else in floats.

quantize(f(dequantize(x)))                       y = table[x]                 (``kernels/table.py``)
quantize(f(dequantize(x), dequantize(y), z))     a loop as for floats, which loads and stores bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from convoy.graph.dtypes import QUANTISED
from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Quantize, Unary
from convoy.kernels.elementwise import plan_elementwise
from convoy.kernels.elementwise import wants_map as chain_wants_map
from convoy.kernels.kernel import KernelKind
from convoy.kernels.table import is_table, plan_table, table_wants_map
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step
from convoy.target import Target


def takes(fusion: Fusion, graph: Graph, target: Target, threads: int, options: Options) -> bool:
    """Whether a table does it, or bytes are uint8, of one scale each."""
    if is_table(fusion, graph):
        return True
    if isinstance(fusion.anchor, Quantize):  # of a scale for each channel
        return False
    if fusion.quantize is not None and graph.dtype(fusion.output) != "uint8":
        return False
    return all(
        graph.dtype(node.inputs[0]) == "uint8"
        and node.inputs[0] not in graph.constants
        and graph.scalar(node.inputs[1]) is not None
        for node in fusion.dequantized
    )


def wants_map(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    return (table_wants_map if is_table(fusion, graph) else chain_wants_map)(fusion, graph, blocked)


def plan(fusion: Fusion, values: Values) -> Iterator[Step]:
    yield from (plan_table if is_table(fusion, values.graph) else plan_elementwise)(fusion, values)


KERNEL = KernelKind(
    nodes=(Unary, Binary, Quantize),
    plan=plan,
    wants_map=wants_map,
    dtypes=frozenset({"float32", *QUANTISED}),
    takes_bytes=takes,
)
