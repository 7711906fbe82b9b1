"""Products, attentions and rotations read and write through views what moves would bring into order.

| written | becomes |
|---|---|
| product(transpose(x), y) | product(x, y) with another view of x; also behind a reshape or a slice |
| transpose(product(x, y)) | product(x, y) with another view of what it makes; also a reshape |
| product(x · c, y), product(x, y) · c | product(x, y) with a scale |
| broadcast(x) + y | x + y, which broadcasts by itself |

Each public function is a rewrite of ``graph.rewrite``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from convoy.graph.graph import Graph
from convoy.graph.merging import Made
from convoy.graph.mixing import mixes
from convoy.graph.ops import Attention, Binary, Node, Product, Reshape, Rotate, Slice, Strided, Transpose
from convoy.graph.views import View, broadcast_view, compose, join_axes, permuted, put_walk, view_whole


def read_through_moves(node: Node, graph: Graph) -> Strided | None:
    """product(transpose(x), y)  =>  product(x, y), x viewed otherwise."""
    if not isinstance(node, Strided):
        return None
    for index, name in enumerate(node.inputs):
        source = move_source(graph.producer.get(name), graph)
        moved = None if source is None else put_view(node, index, graph.shape(name), source[1])
        if source is not None and moved is not None:
            inputs = (*node.inputs[:index], source[0], *node.inputs[index + 1 :])
            return replace(moved, inputs=inputs)
    return None


def write_through_moves(node: Node, graph: Graph) -> Made | None:
    """transpose(product(x, y))  =>  product(x, y), what it makes viewed otherwise."""
    reader = _only_reader(node, graph) if isinstance(node, Strided) else None
    if not isinstance(node, Strided) or not isinstance(reader, Reshape | Transpose):
        return None
    if isinstance(reader, Transpose) and any(
        mixes(then, reader, graph) for then in graph.consumers[reader.output]
    ):
        return None
    made = graph.shape(node.output)
    view = view_whole(made)
    if isinstance(reader, Transpose):
        back = [reader.perm.index(axis) for axis in range(len(made))]
        view = permuted(view_whole(graph.shape(reader.output)), back)
    moved = put_view(node, len(node.inputs), made, view)
    if moved is None:
        return None
    return Made((replace(moved, output=reader.output),), without=reader.output)


def join_view_axes(node: Node, graph: Graph) -> Strided | None:
    """As few axes before the last two as the views allow."""
    if not isinstance(node, Strided):
        return None
    joined = with_views(node, join_axes(views_of(node)))
    return joined if joined != node else None


def take_scale_before(node: Node, graph: Graph) -> Strided | None:
    """product(x · c, y)  =>  product(x, y) with scale c;  of an attention, queries or keys."""
    if not isinstance(node, Product | Attention):
        return None
    for index in (0, 1):
        factor = scale_of(graph.producer.get(node.inputs[index]), graph)
        if factor is not None and math.isfinite(node.scale * factor[1]):
            inputs = (*node.inputs[:index], factor[0], *node.inputs[index + 1 :])
            return replace(node, inputs=inputs, scale=node.scale * factor[1])
    return None


def take_scale_after(node: Node, graph: Graph) -> Made | None:
    """product(x, y) · c  =>  product(x, y) with scale c."""
    reader = _only_reader(node, graph) if isinstance(node, Product) else None
    factor = scale_of(reader, graph)
    if not isinstance(node, Product) or reader is None or factor is None:
        return None
    scaled = replace(node, scale=node.scale * factor[1], output=reader.output)
    return Made((scaled,), without=reader.output) if math.isfinite(scaled.scale) else None


def views_of(node: Strided) -> list[View]:
    """What it reads, in the order of its inputs, and then what it makes."""
    if isinstance(node, Product):
        return [node.a, node.b, node.y]
    if isinstance(node, Rotate):
        return [node.x, node.cos, node.sin, node.y]
    return [node.q, node.k, node.v, *([] if node.mask is None else [node.mask]), node.y]


def with_views(node: Strided, views: Sequence[View]) -> Strided:
    """The node with other views, in the order of ``views_of``."""
    if isinstance(node, Product):
        a, b, y = views
        return replace(node, a=a, b=b, y=y)
    if isinstance(node, Rotate):
        x, cos, sin, y = views
        return replace(node, x=x, cos=cos, sin=sin, y=y)
    q, k, v, *mask, y = views
    return replace(node, q=q, k=k, v=v, y=y, mask=mask[0] if mask else None)


def put_view(node: Strided, index: int, shape: tuple[int, ...], source: View) -> Strided | None:
    """The node, where the tensor that its view ``index`` is of is itself the view ``source`` of another."""
    views = views_of(node)
    walk = compose(views[index], shape, source)
    moved = None if walk is None else put_walk(views, index, walk)
    return None if moved is None else with_views(node, join_axes(moved))


def move_source(node: Node | None, graph: Graph) -> tuple[str, View] | None:
    """What a node that moves elements reads, and the view of it that the node makes."""
    match node:
        case Reshape():
            return node.inputs[0], view_whole(graph.shape(node.output))
        case Transpose(perm=perm):
            return node.inputs[0], permuted(view_whole(graph.shape(node.inputs[0])), perm)
        case Slice(axis=axis, begin=begin, step=step) if step > 0:
            rows = view_whole(graph.shape(node.inputs[0])).strides
            strides = (*rows[:axis], rows[axis] * step, *rows[axis + 1 :])
            return node.inputs[0], View(graph.shape(node.output), strides, begin * rows[axis])
        case Binary() if (x := broadcast_source(node, graph)) is not None:
            return x, broadcast_view(view_whole(graph.shape(x)), graph.shape(node.output))
    return None


def broadcast_source(node: Node | None, graph: Graph) -> str | None:
    """x of x · 1, which broadcasts it."""
    if not isinstance(node, Binary) or node.kind != "mul":
        return None
    x, ones = node.inputs
    return x if ones in graph.constants and (graph.constants[ones] == 1).all() else None


def broadcast_by_itself(node: Node, graph: Graph) -> Node | None:
    """broadcast(x) + y  =>  x + y, where y has the shape of the result."""
    if not isinstance(node, Binary):
        return None
    for index, name in enumerate(node.inputs):
        x, other = broadcast_source(graph.producer.get(name), graph), node.inputs[1 - index]
        if x is not None and graph.shape(other) == graph.shape(node.output):
            return replace(node, inputs=(x, other) if index == 0 else (other, x))
    return None


def scale_of(node: Node | None, graph: Graph) -> tuple[str, float] | None:
    """x and c of x · c, where c is one number, not 0, and the product has the shape of x."""
    if not isinstance(node, Binary) or node.kind not in ("mul", "div"):
        return None
    operands = [node.inputs] if node.kind == "div" else [node.inputs, node.inputs[::-1]]
    for x, other in operands:
        number = graph.scalar(other)
        if number and math.isfinite(number) and graph.shape(x) == graph.shape(node.output):
            return x, 1 / number if node.kind == "div" else number
    return None


def _only_reader(node: Node, graph: Graph) -> Node | None:
    readers = graph.consumers[node.output]
    return readers[0] if len(readers) == 1 and node.output not in graph.outputs else None


REWRITES = (
    broadcast_by_itself,
    read_through_moves,
    write_through_moves,
    take_scale_before,
    take_scale_after,
    join_view_axes,
)
