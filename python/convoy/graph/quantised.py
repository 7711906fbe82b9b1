"""Quantised graphs: the numbers of ``Quantize`` and ``Dequantize``, and constants behind the latter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.graph.dtypes import QUANTISED
from convoy.graph.graph import Graph, drop_unread
from convoy.graph.merging import Made
from convoy.graph.ops import (
    Concat,
    Conv2d,
    ConvTranspose2d,
    Dequantize,
    Node,
    Pad,
    Pool2d,
    Quantize,
    Reshape,
    Resize,
    Tensor,
    Unary,
)

Values = NDArray[Any]

_OF_IMAGES = (Conv2d, ConvTranspose2d, Pool2d)
"""What computes rows as images of one row."""


def quantize(x: Values, scale: Values, zero: Values, axis: int) -> Values:
    """What ``Quantize`` makes of x, of zero's type."""
    bounds = np.iinfo(zero.dtype)
    along = (-1, *(1,) * (x.ndim - 1 - axis))
    with np.errstate(all="ignore"):
        whole = np.rint(x / scale.reshape(along)) + zero.reshape(along)
        held = np.minimum(np.maximum(whole, bounds.min), bounds.max)
        return np.where(np.isnan(held), bounds.min, held).astype(zero.dtype).reshape(x.shape)


def dequantize(x: Values, scale: Values, zero: Values, axis: int) -> Values:
    """What ``Dequantize`` makes of x, of the scale's type."""
    along = (-1, *(1,) * (x.ndim - 1 - axis))
    whole = x.astype(np.int64) - zero.astype(np.int64).reshape(along)
    with np.errstate(over="ignore"):
        return (whole.astype(scale.dtype) * scale.reshape(along)).reshape(x.shape)


def swallow_clamp(node: Node, graph: Graph) -> Node | None:
    """quantize(relu(x))  =>  quantize(x), where bytes end where the clamp does; so of a clip."""
    clamp = graph.producer.get(node.inputs[0])
    if not isinstance(node, Quantize) or not isinstance(clamp, Unary) or clamp.kind not in ("relu", "clip"):
        return None
    low, high = (0.0, np.inf) if clamp.kind == "relu" else (clamp.a, clamp.b)
    scale, zero = (graph.constants[name] for name in node.inputs[1:])
    bounds = np.iinfo(zero.dtype)
    ends = zip((low, high), (bounds.min, bounds.max), strict=True)
    for bound, byte in ends:
        if (quantize(np.full(scale.shape, bound, np.float32), scale, zero, 0) != byte).any():
            return None
    return replace(node, inputs=(clamp.inputs[0], *node.inputs[1:]))


def move_bytes(node: Node, graph: Graph) -> Made | None:
    """move(dequantize(x))  =>  dequantize(move(x)), where all that is moved has one scale."""
    found = _dequantised(node, graph)
    if not found or not all(same_numbers(found[0], other, graph) for other in found):
        return None
    name = f"{node.output}.bytes"
    moved = replace(node, inputs=tuple(made.inputs[0] for made in found), output=name)
    back = replace(found[0], inputs=(name, *found[0].inputs[1:]), output=node.output)
    tensor = Tensor(name, graph.shape(node.output), graph.dtype(moved.inputs[0]))
    return Made((moved, back), tensors=(tensor,))


def move_requantized(node: Node, graph: Graph) -> Made | None:
    """quantize(concat(dequantize(x), …))  =>  concat(quantize(dequantize(x)), …), of unequal scales."""
    concat = graph.producer.get(node.inputs[0])
    if not isinstance(node, Quantize) or not isinstance(concat, Concat) or not _dequantised(concat, graph):
        return None
    if graph.shape(node.inputs[1]) != (1,) or graph.consumers[concat.output] != (node,):
        return None
    names = [f"{node.output}.{i}" for i in range(len(concat.inputs))]
    each = [
        replace(node, inputs=(x, *node.inputs[1:]), output=name)
        for x, name in zip(concat.inputs, names, strict=True)
    ]
    tensors = [
        Tensor(name, graph.shape(x), graph.dtype(node.output))
        for x, name in zip(concat.inputs, names, strict=True)
    ]
    moved = replace(concat, inputs=tuple(names), output=node.output)
    return Made((*each, moved), tensors=tuple(tensors))


def move_padded(node: Node, graph: Graph) -> Made | None:
    """pad(dequantize(x))  =>  dequantize(pad(x)), of one scale, where a byte stands for the value."""
    if not isinstance(node, Pad) or not (found := _bytes_behind(node.inputs, graph)):
        return None
    (back,) = found
    scale, zero = (graph.constants[name] for name in back.inputs[1:])
    value = 0.0
    if node.mode == "constant":
        given = np.array([node.value], np.float32)
        byte = quantize(given, scale, zero, 0)
        if dequantize(byte, scale, zero, 0) != given:
            return None
        value = float(byte.item())
    name = f"{node.output}.bytes"
    padded = replace(node, inputs=back.inputs[:1], output=name, value=value)
    tensor = Tensor(name, graph.shape(node.output), graph.dtype(back.inputs[0]))
    return Made(
        (padded, replace(back, inputs=(name, *back.inputs[1:]), output=node.output)), tensors=(tensor,)
    )


def pick_bytes(node: Node, graph: Graph) -> Made | None:
    """pick(dequantize(x))  =>  dequantize(quantize(pick(dequantize(x)))): what it picks are bytes already.

    Such are maxima and nearest pixels. Without it they are bytes only where the next scale is the same.
    """
    picks = node.kind == "max" if isinstance(node, Pool2d) else isinstance(node, Resize)
    picks &= not isinstance(node, Resize) or node.mode == "nearest"
    if not picks:
        return None
    found, readers = _bytes_behind(node.inputs, graph), graph.consumers[node.output]
    if not found or found[0].inputs[0] in graph.inputs:
        return None
    if all(isinstance(reader, Quantize) and same_numbers(reader, found[0], graph) for reader in readers):
        return None
    (back,) = found
    picked, made = f"{node.output}.picked", f"{node.output}.bytes"
    numbers = back.inputs[1:]
    return Made(
        (
            replace(node, output=picked),
            Quantize(inputs=(picked, *numbers), output=made, origin=node.origin, axis=back.axis),
            replace(back, inputs=(made, *numbers), output=node.output),
        ),
        tensors=(
            Tensor(picked, graph.shape(node.output)),
            Tensor(made, graph.shape(node.output), graph.dtype(back.inputs[0])),
        ),
    )


def quantize_before_reshape(node: Node, graph: Graph) -> Made | None:
    """quantize(reshape(x))  =>  reshape(quantize(x)), of one scale: a convolution of rows makes bytes."""
    reshape = graph.producer.get(node.inputs[0])
    if not isinstance(node, Quantize) or not isinstance(reshape, Reshape):
        return None
    (x,) = reshape.inputs
    if graph.shape(node.inputs[1]) != (1,) or graph.consumers[reshape.output] != (node,):
        return None
    anchor = graph.producer.get(x)
    if isinstance(anchor, Unary):
        anchor = graph.producer.get(anchor.inputs[0])
    if reshape.output in graph.outputs or not isinstance(anchor, _OF_IMAGES):
        return None
    name = f"{node.output}.whole"
    made = replace(node, inputs=(x, *node.inputs[1:]), output=name)
    moved = replace(reshape, inputs=(name,), output=node.output)
    return Made((made, moved), tensors=(Tensor(name, graph.shape(x), graph.dtype(node.output)),))


def _dequantised(node: Node, graph: Graph) -> list[Dequantize]:
    """What dequantises, each with one scale, all that a node moves; none where some of it is no bytes.

    Padding is left where it is: a convolution may have it for its own.
    """
    return [] if not node.moves or isinstance(node, Pad) else _bytes_behind(node.inputs, graph)


def _bytes_behind(names: Sequence[str], graph: Graph) -> list[Dequantize]:
    """What dequantises all of some tensors, each with one scale; none where some of them are no bytes."""
    made = [graph.producer.get(name) for name in names]
    found = [one for one in made if isinstance(one, Dequantize) and graph.shape(one.inputs[1]) == (1,)]
    data = [one.inputs[0] for one in found]
    movable = all(graph.dtype(x) in QUANTISED and x not in graph.constants for x in data)
    return found if movable and len(found) == len(names) else []


def drop_requantize(node: Node, graph: Graph) -> Node | None:
    """quantize(dequantize(x))  =>  x, of one scale and zero point."""
    back = graph.producer.get(node.inputs[0])
    if not isinstance(node, Quantize) or not isinstance(back, Dequantize):
        return None
    if not same_numbers(node, back, graph) or graph.dtype(node.output) != graph.dtype(back.inputs[0]):
        return None
    return Reshape(inputs=back.inputs[:1], output=node.output, origin=node.origin)


def is_dequantised_constant(name: str, graph: Graph) -> bool:
    """Is a tensor made by ``Dequantize`` of a constant, as a quantised weight is?"""
    made = graph.producer.get(name)
    return isinstance(made, Dequantize) and made.inputs[0] in graph.constants


def dequantize_constants(graph: Graph, kept: Collection[str] = ()) -> Graph:
    """The graph with float32 constants in place of ``Dequantize`` of constants.

    Parameters
    ----------
    kept : Collection[str]
        Outputs of those that stay: what kernels read that multiply integers.
    """
    found: dict[str, Values] = {}
    for node in graph.nodes:
        if is_dequantised_constant(node.output, graph) and node.output not in kept:
            assert isinstance(node, Dequantize)
            x, scale, zero = (graph.constants[name] for name in node.inputs)
            found[node.output] = dequantize(x, scale, zero, node.axis)
    if not found:
        return graph
    nodes = tuple(node for node in graph.nodes if node.output not in found)
    return drop_unread(replace(graph, nodes=nodes, constants={**graph.constants, **found}))


def same_numbers(a: Quantize | Dequantize, b: Quantize | Dequantize, graph: Graph) -> bool:
    """Have two the same scale and zero point, along the same axis?"""
    pairs = zip(a.inputs[1:], b.inputs[1:], strict=True)
    alike = all(x == y or _equal(graph.constants[x], graph.constants[y]) for x, y in pairs)
    return a.axis == b.axis and alike


def _equal(x: Values, y: Values) -> bool:
    return x.dtype == y.dtype and np.array_equal(x, y)
