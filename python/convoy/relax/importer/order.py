"""Nodes in an order in which each reads what was made before it.

ONNX asks for such an order, and its checker and shape inference want it.  ONNX Runtime takes any, and its
converter to float16 puts the casts that it adds at the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, MutableSequence

import onnx

from convoy.onnx_file import inner_graphs


def order_nodes(nodes: MutableSequence[onnx.NodeProto]) -> None:
    """Order the nodes of a graph, and of the graphs inside; what is in order stays as it is.

    Of nodes that may come next the first of the model does.  Nodes that wait for each other stay, too: the
    checker refuses them.
    """
    for node in nodes:
        for graph in inner_graphs(node):
            order_nodes(graph.node)
    maker = {name: i for i, node in enumerate(nodes) for name in node.output if name}
    needs = [{maker[name] for name in _reads(node) if name in maker} for node in nodes]
    if all(max(before, default=-1) < i for i, before in enumerate(needs)):
        return
    readers: list[list[int]] = [[] for _ in nodes]
    for i, before in enumerate(needs):
        for j in before:
            readers[j].append(i)
    missing = [len(before) for before in needs]
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) == len(missing):
        ordered = [nodes[i] for i in order]
        del nodes[:]
        nodes.extend(ordered)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node reads, and of those around it what the graphs inside of it read."""
    yield from filter(None, node.input)
    for graph in inner_graphs(node):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        own |= {name for inner in graph.node for name in inner.output}
        read = [name for inner in graph.node for name in _reads(inner)]
        yield from (name for name in (*read, *(output.name for output in graph.output)) if name not in own)
