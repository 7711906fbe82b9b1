"""Rotary embeddings written out in ops become one node, in the forms that exporters write.

| written out | pairs |
|---|---|
| x · cos + concat(-x₂, x₁) · sin | x₁ and x₂ are halves of x, or its even and odd elements |
| concat(x₁ · cos - x₂ · sin, x₂ · cos + x₁ · sin) | likewise, of any tensor |

Elements are put together in turns by a concat behind new axes and a reshape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Concat, Node, Reshape, Rotate, Slice, Unary
from convoy.graph.strided import move_source, views_of, with_views
from convoy.graph.views import Shape, View, broadcast_view, compose, join_axes, view_whole

Order = Literal["halves", "turns"]

Found = tuple[str, View]
"""A tensor, and what is seen of it."""

MOST_AXES = 4
"""Before the last two, as the kernel knows them."""


def raise_rotation(node: Node, graph: Graph) -> Rotate | None:
    """x · cos + turned(x) · sin  =>  rotate(x, cos, sin), and the form of two parts."""
    found = next(_of_a_sum(node, graph), None) or next(_of_parts(node, graph), None)
    if found is None:
        return None
    joined = with_views(found, join_axes(views_of(found)))
    assert isinstance(joined, Rotate)
    return joined if len(joined.x.shape) <= MOST_AXES + 2 else None


def _of_a_sum(node: Node, graph: Graph) -> Iterator[Rotate]:
    """x · cos + concat(-x₂, x₁) · sin."""
    shape = graph.shape(node.output)
    for straight, across in _either(node.output, "add", graph):
        for turned, sin in _either(across, "mul", graph):
            parts = _parts(turned, graph)
            minus, first = parts[:2] if parts is not None else ("", "")
            second = _negated(minus, graph)
            for x, cos in _either(straight, "mul", graph) if parts is not None and second else ():
                pair = _pair(first, second or "", graph, until=x)
                if parts is None or graph.shape(x) != shape or pair is None or pair[0] != x:
                    continue
                if pair[1] != _without_units(_paired(view_whole(shape), parts[2])):
                    continue
                sides = (_paired(_broadcast(name, shape, graph), parts[2]) for name in (cos, sin))
                yield _rotate(node, pair, (cos, sin), tuple(sides), parts[2], graph)


def _of_parts(node: Node, graph: Graph) -> Iterator[Rotate]:
    """concat(x₁ · cos - x₂ · sin, x₂ · cos + x₁ · sin)."""
    parts = _parts(node.output, graph)
    if parts is None:
        return
    shape = graph.shape(parts[0])
    for one, other in _either(parts[0], "sub", graph):
        for first, cos in _either(one, "mul", graph):
            for second, sin in _either(other, "mul", graph):
                wanted = [(second, cos), (first, sin)]
                products = [
                    tuple(list(_either(name, "mul", graph)) for name in names)
                    for names in _either(parts[1], "add", graph)
                ]
                same = any(wanted[0] in a and wanted[1] in b for a, b in products)
                pair = _pair(first, second, graph)
                if same and pair is not None and graph.shape(first) == graph.shape(second) == shape:
                    sides = (_doubled(_broadcast(name, shape, graph)) for name in (cos, sin))
                    yield _rotate(node, pair, (cos, sin), tuple(sides), parts[2], graph)


def _rotate(
    node: Node, x: Found, names: tuple[str, str], sides: tuple[View, ...], order: Order, graph: Graph
) -> Rotate:
    cos, sin = sides
    y = _paired(view_whole(graph.shape(node.output)), order)
    return Rotate(
        inputs=(x[0], *names), output=node.output, origin=node.origin, x=x[1], cos=cos, sin=sin, y=y
    )


def _parts(name: str, graph: Graph) -> tuple[str, str, Order] | None:
    """The two tensors that one is made of along its last axis, and how."""
    made = graph.producer.get(name)
    turns = isinstance(made, Reshape)
    if isinstance(made, Reshape):
        made = graph.producer.get(made.inputs[0])
    if not isinstance(made, Concat) or len(made.inputs) != 2:
        return None
    last = len(graph.shape(made.output)) - 1
    first, second = made.inputs
    if made.axis != last or graph.shape(first) != graph.shape(second):
        return None
    if not turns:
        return first, second, "halves"
    columns = [graph.producer.get(side) for side in made.inputs]
    sources = [column.inputs[0] for column in columns if isinstance(column, Reshape)]
    whole = graph.shape(name)
    if len(sources) < 2 or graph.shape(first)[-1] != 1 or not whole:
        return None
    half = (*whole[:-1], whole[-1] // 2)
    if whole[-1] % 2 or any(graph.shape(source) != half for source in sources):
        return None
    return (sources[0], sources[1], "turns") if graph.shape(first) == (*half, 1) else None


def _pair(first: str, second: str, graph: Graph, until: str = "") -> Found | None:
    """The view [..., 2, I] of a tensor of which two others are slices alike, one behind the other."""
    (one, a), (other, b) = (_source(name, graph, until) for name in (first, second))
    apart = b.offset - a.offset
    if one != other or (a.shape, a.strides) != (b.shape, b.strides) or apart <= 0 or not a.shape:
        return None
    strides = (*a.strides[:-1], apart, a.strides[-1])
    return one, _without_units(View((*a.shape[:-1], 2, a.shape[-1]), strides, a.offset))


def _source(name: str, graph: Graph, until: str) -> Found:
    """What a tensor is slices of, reshaped or not; at most back to ``until``."""
    view = view_whole(graph.shape(name))
    while name != until and isinstance(made := graph.producer.get(name), Slice | Reshape):
        moved = move_source(made, graph)
        walk = None if moved is None else compose(view, graph.shape(name), moved[1])
        if moved is None or walk is None or any(len(factors) > 1 for factors in walk.axes):
            break
        strides = tuple(factors[0][1] if factors else 0 for factors in walk.axes)
        name, view = moved[0], View(view.shape, strides, walk.offset)
    return name, view


def _without_units(view: View) -> View:
    """The same elements, an axis of length 1 with a stride of 0."""
    strides = (0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))
    return replace(view, strides=tuple(strides))


def _paired(view: View, order: Order) -> View:
    """The last axis as [2, I]."""
    *shape, length = view.shape
    *strides, step = view.strides
    ends = (length // 2 * step, step) if order == "halves" else (step, 2 * step)
    return replace(view, shape=(*shape, 2, length // 2), strides=(*strides, *ends))


def _doubled(view: View) -> View:
    """The same for both of a pair."""
    shape, strides = (*view.shape[:-1], 2, view.shape[-1]), (*view.strides[:-1], 0, view.strides[-1])
    return replace(view, shape=shape, strides=strides)


def _broadcast(name: str, shape: Shape, graph: Graph) -> View:
    return broadcast_view(view_whole(graph.shape(name)), shape)


def _negated(name: str, graph: Graph) -> str | None:
    """x of -x."""
    made = graph.producer.get(name)
    if isinstance(made, Unary) and made.kind == "neg":
        return made.inputs[0]
    products = _either(name, "mul", graph)
    return next((x for x, minus in products if graph.scalar(minus) == -1), None)


def _either(name: str, kind: str, graph: Graph) -> Iterator[tuple[str, str]]:
    """The operands of an op of this kind, in both orders where they may be exchanged."""
    made = graph.producer.get(name)
    if isinstance(made, Binary) and made.kind == kind:
        x, y = made.inputs
        yield x, y
        if kind != "sub":
            yield y, x


REWRITES = (raise_rotation,)
