"""Quantised weights of nine bits, as of a zero point that is not in the middle, become two bytes each.

    x · w  =>  (x, x) · (a, b), where a + b = w

The data stand twice side by side, and are bytes.  Where an instruction multiplies four bytes at once, twice
the products take half of what those of floats do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from convoy.graph.graph import Array, Graph, drop_unread
from convoy.graph.ops import Concat, Conv2d, Dequantize, MatMul, Node, Tensor
from convoy.graph.quantised import is_dequantised_constant


def halve_wide_weights(graph: Graph, pays: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with weights of int8, and twice the data, where a weight less its zero point fits no int8.

    Convolutions in groups stay as they are, and so do weights of a step of 255, which is no sum of two.

    Parameters
    ----------
    pays : Callable[[Node, Graph], bool]
        Whether twice the products of bytes are quicker than those of floats.
    """
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    nodes: list[Node] = []

    def constant(name: str, array: Array) -> str:
        constants[name], tensors[name] = array, Tensor(name, array.shape, "int8")
        return name

    def doubled(data: Dequantize, axis: int) -> str:
        """The name of the data twice along an axis, as floats, made once for all who read them."""
        shape = list(graph.shape(data.output))
        shape[axis] *= 2
        name = f"{data.output}.twice.{axis}"
        if name not in tensors:
            held = f"{name}.bytes"
            tensors[held] = Tensor(held, tuple(shape), graph.dtype(data.inputs[0]))
            tensors[name] = Tensor(name, tuple(shape))
            nodes.append(Concat(inputs=(data.inputs[0],) * 2, output=held, axis=axis))
            nodes.append(replace(data, inputs=(held, *data.inputs[1:]), output=name))
        return name

    for node in graph.nodes:
        steps = _wide_steps(node, graph)
        if steps is not None and pays(node, graph):
            data, weight = (graph.producer[name] for name in node.inputs[:2])
            assert isinstance(data, Dequantize)
            channels, depth = (1, 1) if isinstance(node, Conv2d) else (len(graph.shape(data.output)) - 1, 0)
            halves = np.concatenate([steps >> 1, steps - (steps >> 1)], axis=depth).astype(np.int8)
            name = f"{node.output}.halves"
            tensors[name] = Tensor(name, halves.shape)
            none = np.zeros(graph.shape(weight.inputs[2]), np.int8)
            parts = constant(f"{name}.bytes", halves), weight.inputs[1], constant(f"{name}.none", none)
            nodes.append(replace(weight, inputs=parts, output=name))
            node = replace(node, inputs=(doubled(data, channels), name, *node.inputs[2:]))
        nodes.append(node)
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


def _wide_steps(node: Node, graph: Graph) -> Array | None:
    """The weight of a product of bytes in steps of its scale; None where these fit int8, or not two."""
    if not isinstance(node, Conv2d | MatMul) or getattr(node, "groups", 1) != 1:
        return None
    data, weight = (graph.producer.get(name) for name in node.inputs[:2])
    if not isinstance(data, Dequantize) or graph.dtype(data.inputs[0]) not in ("int8", "uint8"):
        return None
    if not isinstance(weight, Dequantize) or not is_dequantised_constant(weight.output, graph):
        return None
    if data.inputs[0] in graph.constants or len(graph.shape(data.output)) < 2:
        return None
    if graph.shape(data.inputs[1]) != (1,):  # a scale for each channel, which no kernel of bytes takes
        return None
    held, zero = graph.constants[weight.inputs[0]], graph.constants[weight.inputs[2]]
    steps = held.astype(np.int16) - zero.astype(np.int16).reshape(-1, *(1,) * (held.ndim - 1 - weight.axis))
    fits = steps.min() >= -128 and steps.max() <= 127
    return None if held.dtype == np.int32 or fits or steps.max() > 254 else steps
