"""Tensors without elements: axes whose size may be 0 at a call.

What gives nothing of nothing is not computed then, a part of nothing is put beside others, and a sum of
nothing is 0.  Other ops, such as a convolution or a mean, need an element to compute with.
"""

from __future__ import annotations

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
        return _axis_of_parts(name, graph) == axis
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


def _axis_of_parts(name: str, graph: Graph) -> int | None:
    """The axis along which an input is only put beside others.

    A model of language begins with nothing in its cache.  The same holds for what was put together of such.
    """
    consumers = graph.consumers[name]
    axes = {node.axis if isinstance(node, Concat) else None for node in consumers}
    if name not in graph.inputs:
        maker = graph.producer.get(name)
        axes.add(maker.axis if isinstance(maker, Concat) else None)
    if not consumers or len(axes) != 1 or name in graph.outputs:
        return None
    return next(iter(axes))
