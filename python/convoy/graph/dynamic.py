"""Networks that are quantised as they run: steps that are computed as floats become bytes.

    (held - zero) · w  =>  dequantize(quantize(held)) · w + (128 - zero) Σ w

where held are the whole numbers from 0 to 255 that ``DynamicQuantizeLinear`` gives, and w are whole,
too.  What dequantises takes away 128, whatever zero is: so sums begin at constants, and are small.  Both
sides are exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from convoy.graph.dtypes import cell_elements
from convoy.graph.graph import Array, Graph, drop_unread
from convoy.graph.ops import Binary, Dequantize, MatMul, Node, Quantize, Reshape, Tensor, Unary

CENTER = 128
MOST = 255.0


def quantize_steps(graph: Graph, pays: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with bytes in place of such steps that are multiplied by whole numbers.

    Parameters
    ----------
    pays : Callable[[Node, Graph], bool]
        Whether a product is taken whose numbers have nine bits, and become two bytes (``graph/wide.py``).
    """
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    nodes: list[Node] = []
    made: set[str] = set()

    def constant(name: str, array: Array) -> str:
        constants[name] = array
        tensors[name] = Tensor(name, array.shape, "uint8" if array.dtype == np.uint8 else "float32")
        return name

    def add(node: Node, shape: tuple[int, ...], *, of_bytes: bool = False) -> str:
        if node.output not in made:
            nodes.append(node)
            made.add(node.output)
            tensors[node.output] = Tensor(node.output, shape, "uint8" if of_bytes else "float32")
        return node.output

    for node in graph.nodes:
        found = _find_steps(node, graph, pays)
        if found is None:
            nodes.append(node)
            continue
        held, zero = found
        shape, w = graph.shape(held), graph.constants[node.inputs[1]]
        one = constant(f"{held}.one", np.ones(1, np.float32))
        none = constant(f"{held}.none", np.zeros(1, np.uint8))
        center = constant(f"{held}.center", np.full(1, CENTER, np.uint8))
        steps = add(Quantize(inputs=(held, one, none), output=f"{held}.bytes"), shape, of_bytes=True)
        data = add(Dequantize(inputs=(steps, one, center), output=f"{held}.centered"), shape)
        off = add(
            Binary(
                inputs=(constant(f"{held}.middle", np.full(1, CENTER, np.float32)), zero),
                output=f"{zero}.off", kind="sub",
            ),
            graph.shape(zero),
        )  # fmt: skip
        sums = constant(f"{node.output}.sums", w.sum(axis=0, dtype=np.float64).astype(np.float32))
        out = graph.shape(node.output)
        shift = Binary(inputs=(off, sums), output=f"{node.output}.shift", kind="mul")
        shift_shape = np.broadcast_shapes(graph.shape(zero), (out[-1],))
        product = replace(node, inputs=(data, node.inputs[1]), output=f"{node.output}.product")
        terms = add(product, out), add(shift, shift_shape)
        nodes.append(Binary(inputs=terms, output=node.output, kind="add", origin=node.origin))
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


def _find_steps(node: Node, graph: Graph, pays: Callable[[Node, Graph], bool]) -> tuple[str, str] | None:
    """What a product reads as held - zero, where all are whole numbers of a byte, and its weights, too."""
    if not isinstance(node, MatMul) or len(node.inputs) != 2 or node.inputs[1] not in graph.constants:
        return None
    less = graph.producer.get(node.inputs[0])
    if not isinstance(less, Binary) or less.kind != "sub":
        return None
    held, zero = less.inputs
    clip = graph.producer.get(held)
    shifted = graph.producer.get(clip.inputs[0]) if clip and _is_byte(clip) else None
    if not isinstance(shifted, Binary) or shifted.kind != "add" or shifted.inputs[1] != zero:
        return None
    point = graph.producer.get(zero)
    while isinstance(point, Reshape):
        point = graph.producer.get(point.inputs[0])
    if point is None or not _is_byte(point):
        return None
    if not all(_is_whole(name, graph) for name in (shifted.inputs[0], point.inputs[0])):
        return None
    w = graph.constants[node.inputs[1]]
    if not np.isfinite(w).all() or (np.rint(w) != w).any() or graph.tensors[zero].size != 1:
        return None
    narrow = (np.abs(w + 0.5) < CENTER).all()
    depth = len(w) if narrow else 2 * len(w)
    if depth % cell_elements("uint8"):  # no kernel of bytes takes it
        return None
    is_two = (np.abs(w) < MOST).all() and (np.ptp(w, axis=0) <= MOST).all()
    return (held, zero) if narrow or (is_two and pays(node, graph)) else None


def _is_byte(node: Node) -> bool:
    return isinstance(node, Unary) and node.kind == "clip" and (node.a, node.b) == (0.0, MOST)


def _is_whole(name: str, graph: Graph) -> bool:
    made = graph.producer.get(name)
    return isinstance(made, Unary) and made.kind == "round"
