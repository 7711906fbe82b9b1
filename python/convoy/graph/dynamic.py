"""Networks that are quantised as they run: steps that are computed as floats become bytes.

    (held - zero) · w + b  =>  dequantize(quantize(held)) · w + ((128 - zero) Σ w + b)

where held are the whole numbers from 0 to 255 that ``DynamicQuantizeLinear`` gives, and w are whole,
too.  What dequantises takes away 128, whatever zero is: so sums begin at constants, and are small.  Both
sides are exact.

A convolution pads with zeros, which are held as the zero point.  That only a run knows, so data are padded
before they become steps.

Where floats are quicker, steps are scaled before they are multiplied, in the pass that makes them:

    (steps · w) * (s * c)  =>  (steps * s) · (w * c)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from convoy.graph.dtypes import cell_elements
from convoy.graph.fusion import output_axis
from convoy.graph.graph import Array, Graph, drop_unread
from convoy.graph.ops import Binary, Conv2d, Dequantize, MatMul, Node, Pad, Quantize, Reshape, Tensor, Unary
from convoy.graph.views import Shape, broadcast_shapes

CENTER = 128
MOST = 255.0
Pays = Callable[[Node, Graph], bool]


def quantize_steps(graph: Graph, pays: Pays, convolution_pays: Pays) -> Graph:
    """The graph with bytes in place of such steps that are multiplied by whole numbers.

    Parameters
    ----------
    pays : Pays
        Whether a product is taken whose numbers have nine bits, and become two bytes (``graph/wide.py``).
    convolution_pays : Pays
        Whether a convolution is quicker of bytes, with its padding around the data.
    """
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    nodes: list[Node] = []
    made: set[str] = set()

    def constant(name: str, array: Array) -> str:
        constants[name] = array
        tensors[name] = Tensor(name, array.shape, "uint8" if array.dtype == np.uint8 else "float32")
        return name

    def add(node: Node, shape: Shape, *, of_bytes: bool = False) -> str:
        if node.output not in made:
            nodes.append(node)
            made.add(node.output)
            tensors[node.output] = Tensor(node.output, shape, "uint8" if of_bytes else "float32")
        return node.output

    def hold_moved(found: HeldSteps, node: Conv2d) -> tuple[str, Shape]:
        """The steps of the data in a convolution's shape, with its padding: 0 is held as the zero point."""
        shape = graph.shape(node.inputs[0])
        ends = "".join(f".{n}" for n in node.padding)
        x, prefix = found.exact.inputs[0], f"{node.inputs[0]}{ends}"
        if shape != graph.shape(x):
            x = add(Reshape(inputs=(x,), output=f"{prefix}.image"), shape)
        if any(node.padding):
            top, left, bottom, right = node.padding
            widths = (0, 0), (0, 0), (top, bottom), (left, right)
            shape = (*shape[:2], shape[2] + top + bottom, shape[3] + left + right)
            x = add(Pad(inputs=(x,), output=f"{prefix}.padded", widths=widths), shape)
        for part in (found.exact, found.rounded, found.shifted, found.clip):
            x = add(replace(part, inputs=(x, *part.inputs[1:]), output=f"{prefix}.{part.output}"), shape)
        return x, shape

    for node in graph.nodes:
        found = _find_steps(node, graph, pays, convolution_pays)
        if found is None:
            nodes.append(node)
            continue
        held, shape, w = found.clip.output, graph.shape(node.inputs[0]), graph.constants[node.inputs[1]]
        bias = [graph.constants[name] for name in node.inputs[2:]]
        sums = w.sum(axis=0, dtype=np.float64)
        if isinstance(node, Conv2d):
            sums = w.sum(axis=(1, 2, 3), dtype=np.float64).reshape(1, -1, 1, 1)
            if any(node.padding) or shape != graph.shape(held):
                held, shape = hold_moved(found, node)
                node = replace(node, padding=(0, 0, 0, 0))
        one = constant(f"{held}.one", np.ones(1, np.float32))
        none = constant(f"{held}.none", np.zeros(1, np.uint8))
        center = constant(f"{held}.center", np.full(1, CENTER, np.uint8))
        steps = add(Quantize(inputs=(held, one, none), output=f"{held}.bytes"), shape, of_bytes=True)
        data = add(Dequantize(inputs=(steps, one, center), output=f"{held}.centered"), shape)
        off = add(
            Binary(
                inputs=(constant(f"{held}.middle", np.full(1, CENTER, np.float32)), found.zero),
                output=f"{found.zero}.off", kind="sub",
            ),
            graph.shape(found.zero),
        )  # fmt: skip
        each = constant(f"{node.output}.sums", sums.astype(np.float32))
        product = replace(node, inputs=(data, node.inputs[1]), output=f"{node.output}.product")
        shift_shape = broadcast_shapes(graph.shape(found.zero), sums.shape)
        shift = add(Binary(inputs=(off, each), output=f"{node.output}.shift", kind="mul"), shift_shape)
        for array in bias:
            own = constant(f"{node.output}.bias", array.reshape(sums.shape))
            shift = add(
                Binary(inputs=(shift, own), output=f"{node.output}.shifted", kind="add"), shift_shape
            )
        terms = add(product, graph.shape(node.output)), shift
        nodes.append(Binary(inputs=terms, output=node.output, kind="add", origin=node.origin))
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


def scale_steps(graph: Graph) -> Graph:
    """The graph with such products of floats scaled on the side of their data, and of their weights."""
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    moved = {product.output: (product, scale) for product, scale in _find_scaled(graph)}
    nodes: list[Node] = []
    for node in graph.nodes:
        if node.output in moved:
            continue
        product, scale = next((moved[name] for name in node.inputs if name in moved), (None, None))
        if product is None or scale is None:
            nodes.append(node)
            continue
        (data, w), by, shape = product.inputs, scale.by, graph.shape(product.inputs[0])
        if len(graph.shape(by)) > len(shape):
            nodes.append(Reshape(inputs=(by,), output=f"{node.output}.scale"))
            by = nodes[-1].output
            tensors[by] = Tensor(by, (1,), "float32")
        steps = Binary(inputs=(data, by), output=f"{node.output}.steps", kind="mul")
        tensors[steps.output] = Tensor(steps.output, shape, "float32")
        if scale.each:
            weights = constants[w] * _by_output(constants[scale.each], product)
            w = f"{node.output}.weights"
            constants[w], tensors[w] = weights, Tensor(w, weights.shape, "float32")
        nodes += [steps, replace(product, inputs=(steps.output, w), output=node.output)]
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


@dataclass(frozen=True)
class _Scaled:
    """``by`` is one number that a run computes; ``each`` a constant for each output, "": none."""

    by: str
    each: str


def _find_scaled(graph: Graph) -> Iterator[tuple[Conv2d | MatMul, _Scaled]]:
    for node in graph.nodes:
        if not isinstance(node, Conv2d | MatMul) or len(node.inputs) > 2 or _steps_of(node, graph) is None:
            continue
        readers = graph.consumers[node.output]
        if len(readers) != 1 or node.output in graph.outputs or node.inputs[1] not in graph.constants:
            continue
        if len(graph.consumers[node.inputs[0]]) > 1 or not isinstance(readers[0], Binary):
            continue
        scale = _scale_of(readers[0], node, graph) if readers[0].kind == "mul" else None
        if scale is not None:
            yield node, scale


def _scale_of(reader: Binary, node: Conv2d | MatMul, graph: Graph) -> _Scaled | None:
    """What a product is multiplied by, if that is a number for all of it, or one for each output."""
    name = reader.inputs[1 - reader.inputs.index(node.output)]
    made = graph.producer.get(name)
    if graph.shape(reader.output) != graph.shape(node.output) or name in graph.constants:
        return None
    if isinstance(made, Conv2d | MatMul):  # it may be moved itself, or be this product
        return None
    if graph.tensors[name].size == 1:
        return _Scaled(name, "")
    if not isinstance(made, Binary) or made.kind != "mul":
        return None
    by, each = made.inputs if made.inputs[1] in graph.constants else made.inputs[::-1]
    outputs = graph.shape(node.output)[output_axis(node, graph)]
    axes = (1, outputs, 1, 1) if isinstance(node, Conv2d) else (outputs,)
    shape = graph.shape(each)
    if graph.tensors[by].size != 1 or each not in graph.constants or outputs != graph.tensors[each].size:
        return None
    return _Scaled(by, each) if (1,) * (len(axes) - len(shape)) + shape == axes else None


def _by_output(each: Array, node: Conv2d | MatMul) -> Array:
    """Numbers of outputs in the shape in which they scale a product's weights."""
    return each.reshape(-1, 1, 1, 1) if isinstance(node, Conv2d) else each.reshape(-1)


@dataclass(frozen=True)
class HeldSteps:
    """held - zero, where held = clip(round(exact) + zero) are whole numbers of a byte."""

    exact: Binary
    """Data over their scale."""
    rounded: Unary
    shifted: Binary
    clip: Unary
    zero: str


def _find_steps(node: Node, graph: Graph, pays: Pays, convolution_pays: Pays) -> HeldSteps | None:
    """What a product reads, where that and its weights are whole numbers of a byte, and it pays."""
    if not isinstance(node, Conv2d | MatMul) or not graph.constants.keys() >= {*node.inputs[1:]}:
        return None
    found = _steps_of(node, graph)
    if found is None or graph.tensors[found.zero].size != 1:
        return None
    w = graph.constants[node.inputs[1]]
    if not np.isfinite(w).all() or (np.rint(w) != w).any():
        return None
    narrow = (np.abs(w + 0.5) < CENTER).all()
    if isinstance(node, Conv2d):
        return found if narrow and convolution_pays(node, graph) else None
    depth = len(w) if narrow else 2 * len(w)
    if depth % cell_elements("uint8"):  # no kernel of bytes takes it
        return None
    is_two = (np.abs(w) < MOST).all() and (np.ptp(w, axis=0) <= MOST).all()
    return found if narrow or (is_two and pays(node, graph)) else None


def _steps_of(node: Node, graph: Graph) -> HeldSteps | None:
    less = graph.producer.get(node.inputs[0])
    if isinstance(node, Conv2d) and isinstance(less, Reshape):  # rows are images of one row
        less = graph.producer.get(less.inputs[0])
    if not isinstance(less, Binary) or less.kind != "sub":
        return None
    found = find_held_steps(less.inputs[0], graph)
    return found if found is not None and found.zero == less.inputs[1] else None


def find_held_steps(held: str, graph: Graph) -> HeldSteps | None:
    """What makes bytes of numbers with a scale and a zero point that are computed; None if nothing does."""
    clip = graph.producer.get(held)
    shifted = graph.producer.get(clip.inputs[0]) if clip else None
    rounded = graph.producer.get(shifted.inputs[0]) if shifted else None
    exact = graph.producer.get(rounded.inputs[0]) if rounded else None
    if not _is_byte(clip) or not _is_whole(rounded):
        return None
    if not isinstance(shifted, Binary) or shifted.kind != "add":
        return None
    zero = shifted.inputs[1]
    point = graph.producer.get(zero)
    while isinstance(point, Reshape):
        point = graph.producer.get(point.inputs[0])
    if not _is_byte(point) or not _is_whole(graph.producer.get(point.inputs[0])):
        return None
    if not isinstance(exact, Binary) or exact.kind != "div" or graph.tensors[exact.inputs[1]].size != 1:
        return None
    if graph.shape(exact.inputs[0]) != graph.shape(held):
        return None
    return HeldSteps(exact, rounded, shifted, clip, zero)


def _is_byte(node: Node | None) -> TypeGuard[Unary]:
    return isinstance(node, Unary) and node.kind == "clip" and (node.a, node.b) == (0.0, MOST)


def _is_whole(node: Node | None) -> TypeGuard[Unary]:
    return isinstance(node, Unary) and node.kind == "round"
