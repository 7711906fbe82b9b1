"""Attention written out in ops becomes one node.

    product(softmax(product(q, k) · scale + mask), v)  =>  attention(q, k, v, mask)

A softmax whose NaN become 0 makes it a safe one, and scores that are replaced by -inf are masked.
Where each head has a scale of its own, q is multiplied by it before.
The axes of heads may be any, in any order, and either product may be the transposed one: what counts is
that the softmax goes along the axis over which the second product sums.

Each public function is a rewrite of ``graph.rewrite``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from convoy.graph.graph import Array, Graph
from convoy.graph.merging import Made
from convoy.graph.ops import Attention, Binary, Node, Product, Reshape, Softmax, Tensor
from convoy.graph.sizes import hint, is_open
from convoy.graph.strided import scale_of, with_views
from convoy.graph.views import (
    Shape,
    View,
    broadcast_shapes,
    broadcast_view,
    compose,
    exchanged,
    join_axes,
    put_walk,
    read_view,
    view_whole,
)

HIDDEN = -1e30
"""A score that is this much or less beside any other has a power of 0."""
MOST_MASK = 1 << 22
"""Elements of a mask that is made of several constants, at most."""


def raise_attention(node: Node, graph: Graph) -> Made | None:
    """product(softmax(product(q, k) + mask), v)  =>  attention(q, k, v, mask)."""
    if not isinstance(node, Product) or node.scale != 1.0:
        return None
    for second in (node, _transposed(node)):
        softmax, safe = _alone(second.inputs[0], graph), False
        if (
            isinstance(softmax, Binary)
            and softmax.kind == "coalesce"
            and graph.scalar(softmax.inputs[1]) == 0
        ):
            softmax, safe = _alone(softmax.inputs[0], graph), True
        if not isinstance(softmax, Softmax) or softmax.log:
            continue
        scores = _read_scores(softmax.inputs[0], graph)
        shape = graph.shape(softmax.output)
        along = (shape[softmax.axis], prod(shape[softmax.axis + 1 :]))
        for first in (scores.product, _transposed(scores.product)) if scores is not None else ():
            views = _match(first, second, along)
            if views is not None and scores is not None:
                return _attention(replace(scores, product=first, safe=safe), second, views, graph)
    return None


def raise_causal(node: Node, graph: Graph) -> Attention | None:
    """attention(q, k, v, mask)  =>  causal attention(q, k, v), of a constant mask that says no more."""
    mask = _constant_mask(node, graph)
    if not isinstance(node, Attention) or node.diagonal is not None or mask is None:
        return None
    rows = mask.reshape(-1, *mask.shape[-2:])
    _, m, n = rows.shape
    diagonal = int((rows[0, 0] == 0).sum()) - 1
    seen = np.tri(m, n, diagonal, dtype=bool)
    hides = (rows[:, seen] == 0).all() and (rows[:, ~seen] <= HIDDEN).all()
    # a query that sees no key would see all alike, were the mask finite; the first query sees the fewest
    if diagonal < 0 or not hides or seen.all():
        return None
    return replace(node, inputs=node.inputs[:3], mask=None, diagonal=diagonal)


def drop_mask(node: Node, graph: Graph) -> Attention | None:
    """attention(q, k, v, 0)  =>  attention(q, k, v)."""
    mask = _constant_mask(node, graph)
    if not isinstance(node, Attention) or mask is None or mask.any():
        return None
    return replace(node, inputs=node.inputs[:3], mask=None)


def _constant_mask(node: Node, graph: Graph) -> Array | None:
    """The mask of an attention, each of its numbers once where it is the same for several heads."""
    if not isinstance(node, Attention) or node.mask is None or node.inputs[3] not in graph.constants:
        return None
    strides = node.mask.strides[:-2]
    shape = tuple(n if s else 1 for n, s in zip(node.mask.shape, strides, strict=False))
    once = replace(node.mask, shape=(*shape, *node.mask.shape[-2:]))
    return None if is_open(once) else read_view(graph.constants[node.inputs[3]], once)


@dataclass(frozen=True)
class _Scores:
    """What a softmax reads: a product, times ``scale``, plus masks."""

    product: Product
    scale: float = 1.0
    factor: Binary | None = None
    """What multiplies or divides them by a constant of more than one number."""
    masks: tuple[tuple[str | Array, Shape], ...] = ()
    """Tensors or constants that are added, and the shapes they are broadcast to."""
    safe: bool = False


def _read_scores(name: str, graph: Graph) -> _Scores | None:
    made = _alone(name, graph)
    if isinstance(made, Product):
        return _Scores(made)
    if isinstance(made, Reshape):
        return _read_scores(made.inputs[0], graph)
    factor = scale_of(made, graph)
    if factor is not None:
        inner = _read_scores(factor[0], graph)
        return None if inner is None or inner.masks else replace(inner, scale=inner.scale * factor[1])
    if isinstance(made, Binary) and made.kind in ("mul", "div") and made.inputs[1] in graph.constants:
        inner = (
            _read_scores(made.inputs[0], graph)
            if graph.shape(made.inputs[0]) == graph.shape(name)
            else None
        )
        return None if inner is None or inner.masks or inner.factor else replace(inner, factor=made)
    if isinstance(made, Binary) and made.kind == "add":
        for x, mask in (made.inputs, made.inputs[::-1]):
            whole = graph.shape(x) == graph.shape(name)
            inner = _read_scores(x, graph) if whole and x not in graph.constants else None
            if inner is not None:
                return replace(inner, masks=(*inner.masks, (mask, graph.shape(name))))
    if isinstance(made, Binary) and made.kind == "coalesce":
        replaced = graph.constants.get(made.inputs[0])
        inner = _read_scores(made.inputs[1], graph)
        whole = graph.shape(made.inputs[1]) == graph.shape(name)
        if replaced is None or inner is None or not whole or (replaced > HIDDEN).any():
            return None
        hidden = np.nan_to_num(replaced, nan=0.0, neginf=-np.inf)
        return replace(inner, masks=(*inner.masks, (hidden, graph.shape(name))))
    return None


def _alone(name: str, graph: Graph) -> Node | None:
    """What makes a tensor that only one node reads, and once."""
    readers = graph.consumers[name]
    if len(readers) != 1 or readers[0].inputs.count(name) != 1 or name in graph.outputs:
        return None
    return graph.producer.get(name)


def _transposed(node: Product) -> Product:
    """The same product, of transposed matrices in the other order."""
    inputs = (node.inputs[1], node.inputs[0])
    return replace(node, inputs=inputs, a=exchanged(node.b), b=exchanged(node.a), y=exchanged(node.y))


def _match(first: Product, second: Product, along: tuple[int, int]) -> list[View] | None:
    """Views q, k, v, y and that of the scores, if the second product sums along the softmax's axis.

    Parameters
    ----------
    along : tuple[int, int]
        Length and stride of that axis.
    """
    made, read = (list(zip(view.shape, view.strides, strict=True)) for view in (first.y, second.a))
    fits = _same(made[-1], along) and _same(read[-1], along) and _same(made[-2], read[-2])
    loops = _pair_axes(first, second) if fits and not second.a.offset else None
    if loops is None:
        return None
    lengths, strides = [loop[0] for loop in loops], list(zip(*(loop[1:] for loop in loops), strict=True))
    views = (first.a, exchanged(first.b), first.y, second.b, second.y)
    of = strides or [()] * 6
    q, k, scores, v, y = (
        View((*lengths, *view.shape[-2:]), (*lead, *view.strides[-2:]), view.offset)
        for view, lead in zip(views, (*of[:3], *of[4:]), strict=True)
    )
    return [q, k, v, y, scores]


def _same(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Are these the same steps?  Of one step any stride is."""
    return one == other or one[0] == other[0] == 1


def _pair_axes(first: Product, second: Product) -> list[tuple[int, ...]] | None:
    """The axes before the last two that both products have, outer first.

    Each is its length and its strides in a, b and y of the first, and a, b and y of the second: one that is
    two axes of the other product is cut in two.
    """
    left, right = (_loops(node, by) for node, by in ((first, 2), (second, 0)))
    found: list[tuple[int, ...]] = []
    while left and right:
        (n, *mine), (m, *yours) = left.pop(), right.pop()
        # open sizes may have no order, as 2 groups of one image and 2 * batch of all
        length, longer = sorted((n, m), key=lambda size: (is_open(size), hint(size)))
        if mine[2] != yours[0] or longer % length != 0:
            return None
        found.insert(0, (length, *mine, *yours))
        for total, strides, rest in ((n, mine, left), (m, yours, right)):
            if total != length:
                rest.append([total // length, *(length * stride for stride in strides)])
    return None if left or right else found


def _loops(node: Product, by: int) -> list[list[int]]:
    """Length and strides of the axes before the last two, those with short strides in one view last."""
    views = (node.a, node.b, node.y)
    loops = zip(node.y.shape[:-2], *(view.strides[:-2] for view in views), strict=True)
    return sorted((list(loop) for loop in loops if loop[0] != 1), key=lambda loop: -hint(loop[1 + by]))


def _attention(scores: _Scores, second: Product, views: list[View], graph: Graph) -> Made | None:
    first = scores.product
    scaled = (
        Made(()) if scores.factor is None else _scale_heads(scores.factor, first.inputs[0], views, graph)
    )
    if scaled is None:
        return None
    query = scaled.nodes[0].output if scaled.nodes else first.inputs[0]
    node = Attention(
        inputs=(query, first.inputs[1], second.inputs[1]), output=second.output, origin=second.origin,
        q=views[0], k=views[1], v=views[2], y=views[3], scale=first.scale * scores.scale, safe=scores.safe,
    )  # fmt: skip
    if not scores.masks:
        return replace(scaled, nodes=(*scaled.nodes, with_views(node, join_axes(views[:4]))))
    mask = _join_masks(scores.masks, second.output, graph)
    walk = None if mask is None else compose(views[4], mask.over, mask.view)
    cut = None if walk is None else put_walk(views, 4, walk)
    if mask is None or cut is None:
        return None
    *four, added = cut
    masked = replace(node, inputs=(*node.inputs, mask.name))
    return Made(
        (*scaled.nodes, *mask.nodes, with_views(masked, (*four[:3], added, four[3]))),
        {**scaled.constants, **mask.constants},
        (*scaled.tensors, *mask.tensors),
    )


def _scale_heads(factor: Binary, query: str, views: Sequence[View], graph: Graph) -> Made | None:
    """q times what its scores are multiplied by, if that is one number a head."""
    numbers, over = graph.constants[factor.inputs[1]], graph.shape(factor.output)
    if not (np.isfinite(numbers).all() and numbers.all()):
        return None
    walk = compose(views[4], over, broadcast_view(view_whole(numbers.shape), over))
    cut = None if walk is None else put_walk(views, 4, walk)
    if cut is None:
        return None
    q, *_, steps = cut
    varies = [axis for axis, step in enumerate(steps.strides) if step]
    if len(varies) != 1 or varies[0] >= len(q.shape) - 2 or q.shape[varies[0]] != numbers.size:
        return None
    shape, stride = graph.shape(query), q.strides[varies[0]]
    rows = view_whole(shape).strides
    at = next((i for i, n in enumerate(shape) if rows[i] * n == stride * numbers.size and n != 1), None)
    if at is None:
        return None
    # that axis of q is heads, and behind them what is left of it
    inner = stride // rows[at]
    split = (*shape[:at], numbers.size, inner, *shape[at + 1 :])
    view = View(split, tuple(int(axis == at) for axis in range(len(split))))
    read = compose(q, split, view)
    if read is None or put_walk([q], 0, read) != [View(q.shape, steps.strides)]:
        return None
    each = np.repeat(numbers.reshape(-1), inner).reshape([-1 if i == at else 1 for i in range(len(shape))])
    name = f"{factor.output}.query"
    scaled = replace(factor, inputs=(query, f"{name}.scale"), output=name)
    return Made((scaled,), {f"{name}.scale": each}, (Tensor(name, shape),))


@dataclass(frozen=True)
class _Mask:
    """What is added to scores, and what there is to make it."""

    name: str
    over: Shape
    """The shape it is broadcast to."""
    view: View
    nodes: tuple[Node, ...] = ()
    constants: dict[str, Array] = field(default_factory=dict)
    tensors: tuple[Tensor, ...] = ()


def _join_masks(masks: Sequence[tuple[str | Array, Shape]], output: str, graph: Graph) -> _Mask | None:
    """One mask in place of several."""
    joined = f"{output}.mask"
    arrays = [graph.constants.get(mask) if isinstance(mask, str) else mask for mask, _ in masks]
    (first, over), *others = masks
    if not others:
        if isinstance(first, str):
            return _Mask(first, over, broadcast_view(view_whole(graph.shape(first)), over))
        return _Mask(joined, over, broadcast_view(view_whole(first.shape), over), constants={joined: first})
    constants = [array for array in arrays if array is not None]
    if len(constants) == len(masks):
        if is_open(over) or prod(over) > MOST_MASK:
            return None
        broadcast = zip(constants, (to for _, to in masks), strict=True)
        total = sum(np.broadcast_to(array, to).reshape(over) for array, to in broadcast)
        return _Mask(joined, over, view_whole(over), constants={joined: np.asarray(total, np.float32)})
    (other, to), *more = others
    if more or to != over or not isinstance(first, str) or not isinstance(other, str):
        return None
    own, shape = (graph.shape(name) for name in (first, other))
    if len(own) != len(shape):
        return None
    shape = broadcast_shapes(own, shape)
    add = Binary(inputs=(first, other), output=joined, kind="add")
    view = broadcast_view(view_whole(shape), over)
    return _Mask(joined, over, view, (add,), tensors=(Tensor(joined, shape),))


REWRITES = (raise_attention, raise_causal, drop_mask)
