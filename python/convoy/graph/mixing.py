"""Products over few channels, such as the heads of an attention, are computed where the channels lie.

    transpose(matmul(transpose(x), w) + b)  =>  product(wᵀ, x) + b

Networks whose attention talks between heads, as CaiT's does, have a matrix of heads before the softmax and
one behind it.  Written as products of rows of four numbers they fill a quarter of a vector, between
transposes of all scores; as products of a small matrix and long rows neither.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from convoy.graph.graph import Graph
from convoy.graph.merging import Made
from convoy.graph.ops import Binary, MatMul, Node, Product, Softmax, Tensor, Transpose
from convoy.graph.sizes import hint
from convoy.graph.views import View, view_whole

FEW, MANY = 16, 64
"""Channels at most, and numbers of each, at least."""
_MOST_SHIFT = 100.0


def mix_where_they_lie(node: Node, graph: Graph) -> Made | None:
    """matmul(transpose(x), w) + b  =>  transpose(product(wᵀ, x) + b), of few channels."""
    turn = graph.producer.get(node.inputs[0])
    if not isinstance(node, MatMul) or not isinstance(turn, Transpose) or not mixes(node, turn, graph):
        return None
    (x,), weight = turn.inputs, node.inputs[1]
    (k, n), shape, axis = graph.shape(weight), graph.shape(x), turn.perm[-1]
    lead, behind = shape[:axis], shape[axis + 1 :]
    mixed = Tensor(f"{node.output}.mixed", (*lead, n, *behind))
    product = Product(
        inputs=(weight, x), output=mixed.name, origin=node.origin,
        a=View((*lead, n, k), (*[0] * axis, 1, n)),
        b=view_whole((*lead, k, prod(behind))), y=view_whole((*lead, n, prod(behind))),
    )  # fmt: skip
    add = _bias_behind(node, graph)
    if add is None:
        back = Transpose(inputs=(mixed.name,), output=node.output, perm=turn.perm)
        return Made((product, back), tensors=(mixed,))
    bias = graph.constants[add.inputs[1]].reshape(n, *[1] * len(behind))
    moved = Tensor(f"{add.output}.mixed", mixed.shape)
    shift = Binary(
        inputs=(mixed.name, f"{moved.name}.bias"), output=moved.name, origin=add.origin, kind="add"
    )
    back = Transpose(inputs=(moved.name,), output=add.output, perm=turn.perm)
    constants = {f"{moved.name}.bias": bias}
    return Made((product, shift, back), constants, (mixed, moved), without=add.output)


def mixes(node: Node, turn: Transpose, graph: Graph) -> bool:
    """Is this a product over few channels, which ``turn`` brings together?"""
    if not isinstance(node, MatMul) or len(node.inputs) != 2 or turn.perm[-1] == 0:
        return False
    (x,), weight = turn.inputs, node.inputs[1]
    behind = prod(graph.shape(x)[turn.perm[-1] + 1 :])
    floats = graph.dtype(weight) == graph.dtype(x) == "float32"
    return floats and max(graph.shape(weight)) <= FEW and hint(behind) >= MANY


def _bias_behind(node: Node, graph: Graph) -> Binary | None:
    """The only op that reads it, if that adds a constant number to each channel of the last axis."""
    readers = graph.consumers[node.output]
    add = readers[0] if len(readers) == 1 and node.output not in graph.outputs else None
    if not isinstance(add, Binary) or add.kind != "add":
        return None
    if add.inputs[1] == node.output:
        add = replace(add, inputs=add.inputs[::-1])
    bias, shape = graph.constants.get(add.inputs[1]), graph.shape(node.output)
    fits = (
        bias is not None and bias.size == shape[-1] == bias.shape[-1] and graph.shape(add.output) == shape
    )
    return add if fits else None


def drop_shift(node: Node, graph: Graph) -> Node | None:
    """softmax(x + c)  =>  softmax(x), where c is one number, not large, along the softmax's axis."""
    add = graph.producer.get(node.inputs[0]) if isinstance(node, Softmax) else None
    if not isinstance(node, Softmax) or not isinstance(add, Binary) or add.kind != "add":
        return None
    shape = graph.shape(add.output)
    for x, other in (add.inputs, add.inputs[::-1]):
        shift = graph.constants.get(other)
        if shift is None or graph.shape(x) != shape:
            continue
        from_end = len(shape) - node.axis
        along = shift.shape[-from_end] if from_end <= shift.ndim else 1
        if along == 1 and bool((np.abs(shift) <= _MOST_SHIFT).all()):
            return Softmax(
                inputs=(x,), output=node.output, origin=node.origin, axis=node.axis, log=node.log
            )
    return None


REWRITES = (mix_where_they_lie, drop_shift)
