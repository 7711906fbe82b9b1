"""Quantised graphs in the form that kernels of bytes read: unsigned data, weights without zero points.

int8 between Quantize and Dequantize          =>  uint8, all numbers and zero points 128 larger
Dequantize of a constant (w, scale, zero)     =>  of (w - zero, scale, 0), where int8 holds that
quantize(move(dequantize(x)))                 =>  move(x)
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from convoy.graph.graph import Graph, drop_unread
from convoy.graph.ops import Dequantize, Node, Pad, Quantize, Tensor
from convoy.graph.quantised import is_dequantised_constant

OFFSET = 128
"""From a signed byte to the unsigned one that stands for the same number."""


def prepare_bytes(graph: Graph) -> Graph:
    """The graph in that form, as far as it can be."""
    return _unsigned(_without_zeros(graph))


def _without_zeros(graph: Graph) -> Graph:
    """Weights without zero points."""
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        if is_dequantised_constant(node.output, graph):
            x, zero = graph.constants[node.inputs[0]], graph.constants[node.inputs[2]]
            assert isinstance(node, Dequantize)
            steps = x.astype(np.int64) - zero.astype(np.int64).reshape(-1, *(1,) * (x.ndim - 1 - node.axis))
            if x.dtype != np.int32 and zero.any() and (np.abs(steps + 0.5) < OFFSET).all():
                made = steps.astype(np.int8), np.zeros(zero.shape, np.int8)
                names = [f"{node.output}.{part}" for part in ("steps", "none")]
                for name, array in zip(names, made, strict=True):
                    constants[name], tensors[name] = array, Tensor(name, array.shape, "int8")
                node = replace(node, inputs=(names[0], node.inputs[1], names[1]))
        nodes.append(node)
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


def _unsigned(graph: Graph) -> Graph:
    """Unsigned bytes where signed ones are made by ``Quantize``, moved, and read by ``Dequantize``."""
    changed = _signed_inside(graph)
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    nodes: list[Node] = []
    for node in graph.nodes:
        data = node.output if isinstance(node, Quantize) else node.inputs[0]
        if isinstance(node, Quantize | Dequantize) and data in changed:
            x, scale, zero = node.inputs
            name = f"{zero}.unsigned"
            constants[name] = (graph.constants[zero].astype(np.int64) + OFFSET).astype(np.uint8)
            tensors[name] = Tensor(name, constants[name].shape, "uint8")
            node = replace(node, inputs=(x, scale, name))
        elif isinstance(node, Pad) and node.mode == "constant" and data in changed:
            node = replace(node, value=node.value + OFFSET)
        nodes.append(node)
    tensors |= {name: replace(tensors[name], dtype="uint8") for name in changed}
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


def _signed_inside(graph: Graph) -> set[str]:
    """Tensors of signed bytes that nobody else sees."""
    signed = {name for name, tensor in graph.tensors.items() if tensor.dtype == "int8"}
    found = signed - {*graph.inputs, *graph.outputs, *graph.constants}
    for name in list(found):
        readers = graph.consumers[name]
        known = isinstance(graph.producer[name], Quantize) or graph.producer[name].moves
        if not known or not all(isinstance(node, Dequantize) or node.moves for node in readers):
            found.discard(name)
    while True:  # what is moved together is of one type
        groups = [{*node.inputs, node.output} for node in graph.nodes if node.moves]
        apart = set().union(*(group & found for group in groups if not group <= found))
        if not apart:
            return found
        found -= apart
