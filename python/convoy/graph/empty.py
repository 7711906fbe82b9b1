"""Tensors without elements: axes whose size may be 0 at a call.

What gives nothing of nothing is not computed then, a part of nothing is put beside others, and a sum of
nothing is 0.  Other ops, such as a convolution or a mean, need an element to compute with.
"""

from __future__ import annotations

from math import prod

from convoy.graph.graph import Graph
from convoy.graph.ops import (
    Attention,
    Binary,
    ChannelShuffle,
    Concat,
    Dequantize,
    GroupNorm,
    LayerNorm,
    Lrn,
    MatMul,
    Node,
    Pad,
    Product,
    Quantize,
    Reduce,
    Reshape,
    Rotate,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.graph.sizes import bounds, is_open

_ALIKE = (
    Binary, ChannelShuffle, Concat, Dequantize, GroupNorm, LayerNorm, Lrn, MatMul, Product, Quantize,
    Reshape, Rotate, Slice, Softmax, Transpose, Unary,
)  # fmt: skip
"""What makes nothing of nothing, whichever axis has none.  Of a Concat the others are left, and a product
without columns to add up is zeros."""
IMAGE_AXES = (2, 3)
"""Those of a reduction that may read a map, whose kernel has no sum of nothing."""


def may_be_empty(name: str, axis: int, graph: Graph, filled: bool) -> bool:
    """Whether a call may have a tensor of the region of size 0 along an axis.

    Parameters
    ----------
    filled : bool
        Only for what is put beside others.
    """
    if not is_open(graph.shape(name)[axis]):
        return False
    if filled:
        return _is_put_beside(name, axis, graph)
    return all(_stands_nothing(node, axis) for node in graph.consumers[name])


def _stands_nothing(node: Node, axis: int) -> bool:
    """Whether an op computes what it should where an input has no elements along an axis."""
    match node:
        case Reduce(kind=kind, axes=axes):
            return axis not in axes or (kind == "sum" and axes != IMAGE_AXES)
        case Pad(widths=widths):
            return widths[axis] == (0, 0)
        case Attention(k=k):
            return bounds(k.shape[-1])[0] >= 1
    return isinstance(node, _ALIKE)


def _is_put_beside(name: str, axis: int, graph: Graph) -> bool:
    """Whether a tensor is only put beside others along an axis, or leaves the region as it came.

    A model of language begins with nothing in its cache.  The same holds for what was put together of such,
    and for what is cut from a cache of keys and values or moved to another place in between.
    """
    return _ends_beside(name, axis, graph) and _comes_so(name, axis, graph)


def _ends_beside(name: str, axis: int, graph: Graph) -> bool:
    consumers = graph.consumers[name]
    leaves = name in graph.outputs and not isinstance(graph.producer.get(name), Concat)
    return (
        bool(consumers or leaves)
        and (leaves or name not in graph.outputs)
        and all(
            node.axis == axis
            if isinstance(node, Concat)
            else any(_ends_beside(node.output, place, graph) for place in _moved(node, axis, graph))
            for node in consumers
        )
    )


def _comes_so(name: str, axis: int, graph: Graph) -> bool:
    if name in graph.inputs:
        return True
    maker = graph.producer.get(name)
    if isinstance(maker, Concat):
        return maker.axis == axis
    return maker is not None and any(
        axis in _moved(maker, before, graph) and _comes_so(maker.inputs[0], before, graph)
        for before in range(len(graph.shape(maker.inputs[0])))
    )


def _moved(node: Node, axis: int, graph: Graph) -> tuple[int, ...]:
    """Where an axis of an input is in the output, if the op moves elements and leaves the axis whole."""
    match node:
        case Slice():
            return (axis,) if axis != node.axis else ()
        case Transpose(perm=perm):
            return (perm.index(axis),)
        case Reshape():
            before, after = graph.shape(node.inputs[0]), graph.shape(node.output)
            outer = prod(before[:axis])
            places = (
                i for i, size in enumerate(after) if size == before[axis] and prod(after[:i]) == outer
            )
            return tuple(places)
    return ()
