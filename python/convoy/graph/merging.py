"""Merge constants into the anchor before them, and reshapes out of an anchor's way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from convoy.graph.fusion import Kernel, kind_of_addition, other_input, output_axis
from convoy.graph.graph import Array, Graph
from convoy.graph.ops import (
    Binary,
    Conv2d,
    ConvTranspose2d,
    MatMul,
    Node,
    Pad,
    Reduce,
    Reshape,
    Tensor,
    Unary,
)
from convoy.graph.views import Shape

Anchor = Conv2d | ConvTranspose2d | MatMul


@dataclass(frozen=True)
class Made:
    """Nodes in place of one, the last of which makes what others read, and tensors the graph had not."""

    nodes: tuple[Node, ...]
    constants: Mapping[str, Array] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()
    """What the nodes before the last make."""
    without: str = ""
    """What a later node makes, whose place they take, too."""


def merge_bias(anchor: Node, graph: Graph, kernels: Mapping[Node, Kernel[Node]]) -> Made | None:
    """conv2d(x, w) + b, one number a channel  =>  conv2d(x, w, b), where one kernel computes both."""
    parts = kernels[anchor].parts if anchor in kernels else ()
    add = next((part.ops[0] for part in parts if part.slot == "bias" and part.ops), None)
    if add is None or not isinstance(anchor, Anchor):
        return None
    bias = _bias(anchor, graph) + _constant_beside(anchor, add, graph)
    return _with_constants(anchor, add, graph.constants[anchor.inputs[1]], bias)


def merge_scale(anchor: Node, graph: Graph) -> Made | None:
    """conv2d(x, w, b) · s, one number a channel  =>  conv2d(x, w · s, b · s), if w · s is normal."""
    readers = graph.consumers[anchor.output]
    if not isinstance(anchor, Anchor) or anchor.output in graph.outputs or len(readers) != 1:
        return None
    (mul,) = readers
    if not isinstance(mul, Binary) or mul.kind != "mul":
        return None
    other, shape = other_input(mul, anchor.output), graph.shape(mul.output)
    channel, constant = output_axis(anchor, graph), other in graph.constants
    same = graph.shape(anchor.output) == shape
    kind = kind_of_addition(graph.shape(other), shape, constant=constant, channel=channel)
    if not same or kind != "bias":
        return None
    scale = _constant_beside(anchor, mul, graph)
    scaled = _scaled(graph.constants[anchor.inputs[1]], scale, anchor)
    normal = np.finfo(np.float32)
    if not np.isfinite(scaled).all() or not normal.tiny <= np.abs(scaled).max(initial=0) <= normal.max:
        return None
    bias = _bias(anchor, graph) * scale if len(anchor.inputs) > 2 else None
    return _with_constants(anchor, mul, scaled.astype(np.float32), bias)


def lower_reshape(node: Node, graph: Graph) -> Made | None:
    """relu(reshape [1, C, 1, W] -> [1, C, W])  =>  reshape(relu), as behind a 1-D convolution.

    That is a 2-D one between reshapes: what follows joins its kernel, and the next needs no reshape.
    """
    if not isinstance(node, Unary | Binary) or len(shape := graph.shape(node.output)) != 3:
        return None
    computed = [name for name in node.inputs if name not in graph.constants]
    if not any(_row_of(name, shape, graph) for name in computed):
        return None
    made: list[Node] = []
    constants: dict[str, Array] = {}
    tensors: list[Tensor] = []
    inputs: list[str] = []
    for i, name in enumerate(node.inputs):
        source = _row_of(name, shape, graph)
        if source is None:
            source = f"{node.output}.{i}"
            wide = as_row(graph.shape(name))
            if name in graph.constants:
                constants[source] = graph.constants[name].reshape(wide)
            else:
                tensors.append(replace(graph.tensors[name], name=source, shape=wide))
                made.append(Reshape(inputs=(name,), output=source, origin=node.origin))
        inputs.append(source)
    result = f"{node.output}.row"
    tensors.append(replace(graph.tensors[node.output], name=result, shape=as_row(shape)))
    made.append(replace(node, inputs=tuple(inputs), output=result))
    made.append(Reshape(inputs=(result,), output=node.output, origin=node.origin))
    return Made(tuple(made), constants, tuple(tensors))


def lift_activation(node: Node, graph: Graph) -> Made | None:
    """gelu(reshape(conv2d))  =>  reshape(gelu(conv2d)), which ends the anchor's kernel; so of matmul."""
    reshape = graph.producer.get(node.inputs[0]) if isinstance(node, Unary) else None
    if not isinstance(reshape, Reshape) or len(graph.consumers[reshape.output]) != 1:
        return None
    source = reshape.inputs[0]
    if not _ends_anchor(source, graph) or reshape.output in graph.outputs:
        return None
    result = replace(graph.tensors[source], name=f"{node.output}.map")
    return Made(
        (
            replace(node, inputs=(source,), output=result.name),
            replace(reshape, inputs=(result.name,), output=node.output),
        ),
        {},
        (result,),
    )


def _ends_anchor(name: str, graph: Graph) -> bool:
    """Is this what an anchor computes, or that with numbers added, or multiplied by them?"""
    made = graph.producer.get(name)
    while isinstance(made, Binary) and made.kind in ("add", "mul"):
        whole = [other for other in made.inputs if graph.shape(other) == graph.shape(name)]
        if len(whole) != 1 or len(graph.consumers[made.output]) != 1:
            return False
        made = graph.producer.get(whole[0])
    return isinstance(made, Conv2d | MatMul)


def lift_pad(node: Node, graph: Graph) -> Made | None:
    """reshape(pad [1, C, W]) -> [1, C, 1, W]  =>  pad(reshape), which a 1-D convolution takes."""
    pad = graph.producer.get(node.inputs[0]) if isinstance(node, Reshape) else None
    if not isinstance(pad, Pad) or len(pad.widths) != 3 or pad.widths[1] != (0, 0):
        return None
    before, after = (graph.shape(name) for name in (pad.inputs[0], pad.output))
    if graph.shape(node.output) != (*after[:2], 1, after[2]):
        return None
    source = f"{node.output}.row"
    wide = replace(graph.tensors[pad.inputs[0]], name=source, shape=(*before[:2], 1, before[2]))
    reshape = Reshape(inputs=pad.inputs, output=source, origin=node.origin)
    lifted = replace(
        pad, inputs=(source,), output=node.output, widths=(*pad.widths[:2], (0, 0), pad.widths[2])
    )
    return Made((reshape, lifted), tensors=(wide,))


def as_row(shape: Shape) -> Shape:
    """[1, C, W]  =>  [1, C, 1, W]: an image of one row; of fewer axes, what broadcasts to one likewise."""
    return (*shape[:-1], 1, *shape[-1:]) if len(shape) > 1 else shape


def _row_of(name: str, shape: Shape, graph: Graph) -> str | None:
    """The image of one row that ``name``, of this shape, is a reshape of; None if it is none."""
    made = graph.producer.get(name)
    if not isinstance(made, Reshape) or graph.shape(name) != shape:
        return None
    return made.inputs[0] if graph.shape(made.inputs[0]) == as_row(shape) else None


def _constant_beside(anchor: Anchor, node: Node, graph: Graph) -> NDArray[np.float64]:
    """What ``node`` adds to an anchor's result, or multiplies it by: a number for each output channel."""
    array = graph.constants[other_input(node, anchor.output)].reshape(-1)
    channels = graph.shape(anchor.output)[output_axis(anchor, graph)]
    return np.broadcast_to(array, (channels,)).astype(np.float64)


def _bias(anchor: Anchor, graph: Graph) -> NDArray[np.float64]:
    given = graph.constants[anchor.inputs[2]] if len(anchor.inputs) > 2 else np.zeros(1)
    return given.astype(np.float64)


def _scaled(weight: Array, scale: NDArray[np.float64], anchor: Anchor) -> NDArray[np.float64]:
    """The weight times a number for each output channel."""
    if isinstance(anchor, Conv2d):
        return weight * scale[:, None, None, None]
    if isinstance(anchor, MatMul):
        return weight * scale
    rows, columns, *taps = weight.shape
    each = scale.reshape(anchor.groups, 1, columns, 1, 1)
    return (weight.reshape(anchor.groups, rows // anchor.groups, columns, *taps) * each).reshape(
        weight.shape
    )


def _with_constants(anchor: Anchor, node: Node, weight: Array, bias: NDArray[np.float64] | None) -> Made:
    """The anchor with this weight and bias, making what ``node`` made of its result."""
    constants: dict[str, Array] = {}
    names = [f"{node.output}.weight", f"{node.output}.bias"]
    for name, array in zip(names, (weight, bias), strict=True):
        if array is not None:
            constants[name] = np.asarray(array, np.float32)
    made = replace(anchor, inputs=(anchor.inputs[0], *constants), output=node.output)
    return Made((made,), constants, without=node.output)


def extreme_before_reshape(node: Node, graph: Graph) -> Made | None:
    """max(reshape(x))  =>  reshape(max(x)), of all there is; so of min.  A map may stay in its layout."""
    if not isinstance(node, Reduce) or node.kind not in ("max", "min"):
        return None
    reshape = graph.producer.get(node.inputs[0])
    if not isinstance(reshape, Reshape):
        return None
    (x,) = reshape.inputs
    shape, seen = graph.shape(x), graph.shape(reshape.output)
    if len(shape) == 1 or shape[0] != seen[0] or node.axes != tuple(range(1, len(seen))):
        return None
    name = f"{node.output}.whole"
    axes = tuple(range(1, len(shape)))
    reduced = replace(node, inputs=(x,), axes=axes, keepdims=True, output=name)
    back = Reshape(inputs=(name,), output=node.output, origin=node.origin)
    return Made(
        (reduced, back), tensors=(Tensor(name, (shape[0], *(1 for _ in axes)), graph.dtype(node.output)),)
    )
