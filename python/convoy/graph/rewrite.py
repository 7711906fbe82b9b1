"""Raise idioms that both doors leave in pieces, merge constants, and drop what computes nothing.

Each rewrite is one function ``rewrite(node, graph) -> what takes its place, or None``; ``simplify`` applies
them to a fixpoint.  A rewrite sees the whole graph but may only replace the node it is given; nodes
nobody reads any more are dropped at the end of each round.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from convoy.errors import OpenSizeError
from convoy.graph import attention, mixing, norms, rotary, strided
from convoy.graph.dtypes import dtype_of
from convoy.graph.fusion import find_kernels
from convoy.graph.graph import Graph, drop_unread
from convoy.graph.idioms import ENDINGS, find_activation
from convoy.graph.merging import (
    Made,
    extreme_before_reshape,
    lift_activation,
    lift_pad,
    lower_reshape,
    merge_bias,
    merge_scale,
)
from convoy.graph.ops import (
    PARAMETERS,
    Binary,
    ChannelShuffle,
    Conv2d,
    Dequantize,
    Node,
    Pad,
    Pool2d,
    Quantize,
    Reshape,
    Sides,
    Slice,
    Tensor,
    Transpose,
    Unary,
)
from convoy.graph.polynomial import read_line
from convoy.graph.quantised import (
    drop_requantize,
    move_bytes,
    move_padded,
    move_requantized,
    pick_bytes,
    quantize_before_reshape,
    same_numbers,
    swallow_clamp,
)
from convoy.graph.shapes import find_blind_window
from convoy.graph.sizes import always_before
from convoy.graph.sums import merge_branches

Rewrite = Callable[[Node, Graph], Node | Made | None]


def simplify(graph: Graph, disabled: Collection[str] = ()) -> Graph:
    """The same function with fewer nodes.  Inputs and outputs keep their names.

    Parameters
    ----------
    disabled : Collection[str]
        Patterns that are switched off: no bias is merged that their kernels would take.
    """
    while True:
        simpler = _rewrite(graph, REWRITES)
        if simpler.nodes == graph.nodes:  # what is merged is no part of an idiom
            merges = (
                move_padded,  # what no convolution has for its own
                merge_scale,
                merge_branches,
                partial(merge_bias, kernels=find_kernels(graph, disabled)),
            )
            simpler = _rewrite(graph, merges)
        if simpler.nodes == graph.nodes:
            return share_constants(graph)
        graph = simpler


def share_constants(graph: Graph) -> Graph:
    """Constants of one content under one name, so that they are packed once.

    The slices of a volume have the same weights (``graph/volumes.py``), and to each the bias was merged.
    """
    alike: dict[tuple[object, ...], list[str]] = {}
    for name, array in graph.constants.items():
        alike.setdefault((graph.dtype(name), array.shape), []).append(name)
    kept: dict[str, str] = {}
    for names in alike.values():
        seen: dict[bytes, str] = {}
        for name in names if len(names) > 1 else ():
            content = hashlib.blake2b(np.ascontiguousarray(graph.constants[name]).data, digest_size=32)
            kept[name] = seen.setdefault(content.digest(), name)
    if all(name == first for name, first in kept.items()):
        return graph
    nodes = (replace(n, inputs=tuple(kept.get(name, name) for name in n.inputs)) for n in graph.nodes)
    return drop_unread(replace(graph, nodes=tuple(nodes)))


def _rewrite(graph: Graph, rewrites: Sequence[Rewrite]) -> Graph:
    """Each node replaced by what the first rewrite that fires makes of it; what nobody reads is gone."""
    nodes: list[Node] = []
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    gone: set[str] = set()
    lost: set[str] = set()
    """Tensors that no node makes any more: a rewrite, which sees them in ``graph``, may ask for one."""
    for node in graph.nodes:
        if node.output in gone:
            continue
        tried = (_try(rewrite, node, graph) for rewrite in rewrites)
        made = next((found for found in tried if found is not None), node)
        written = made.nodes if isinstance(made, Made) else (made,)
        if any(name in lost for new in written for name in new.inputs):
            made, written = node, (node,)  # in the next round
        if isinstance(made, Made):
            gone.add(made.without)
            lost |= {node.output} - {new.output for new in written}
            constants |= made.constants
            tensors |= {tensor.name: tensor for tensor in made.tensors}
            tensors |= {
                name: Tensor(name, array.shape, dtype_of(array) or "float32")
                for name, array in made.constants.items()
            }
        nodes += written
    return drop_unread(replace(graph, nodes=tuple(nodes), tensors=tensors, constants=constants))


def _try(rewrite: Rewrite, node: Node, graph: Graph) -> Node | Made | None:
    """What it makes of the node; nothing where it would depend on sizes that are known at the call."""
    try:
        return rewrite(node, graph)
    except OpenSizeError:
        return None


def raise_activation(node: Node, graph: Graph) -> Node | None:
    """x · sigmoid(x)  =>  silu(x), and the others of ``graph/idioms.py``."""
    if not isinstance(node, Unary | Binary) or node.kind not in ENDINGS:
        return None
    found = find_activation(node.output, _Arithmetic(graph))
    if found is None or graph.shape(found.x) != graph.shape(node.output):
        return None
    numbers = {name: getattr(found, name) for name in PARAMETERS.get(found.kind, "")}
    return Unary(inputs=(found.x,), output=node.output, origin=node.origin, kind=found.kind, **numbers)


def raise_gated_hardsigmoid(node: Node, graph: Graph) -> Node | None:
    """x · hardsigmoid(x; 1/6, 1/2)  =>  hardswish(x), where the hardsigmoid is one node already.

    Where x is a line, the hardsigmoid may be of what that is of.
    """
    if not isinstance(node, Binary) or node.kind != "mul":
        return None
    for x, gate_name in (node.inputs, node.inputs[::-1]):
        gate = graph.producer.get(gate_name)
        if not isinstance(gate, Unary) or gate.kind != "hardsigmoid":
            continue
        line = read_line(x, gate.inputs[0], _Arithmetic(graph))
        if line is None or graph.shape(x) != graph.shape(node.output):
            continue
        a = gate.a / line[0]
        if np.allclose((a, gate.b - a * line[1]), (1 / 6, 1 / 2), rtol=0, atol=1e-6):
            return Unary(inputs=(x,), output=node.output, origin=node.origin, kind="hardswish")
    return None


@dataclass(frozen=True)
class _Arithmetic:
    """``graph.polynomial.Arithmetic`` of a graph: its expressions are the names of tensors."""

    graph: Graph

    def scalar(self, expr: str) -> float | None:
        return self.graph.scalar(expr)

    def operation(self, expr: str) -> tuple[str, Sequence[str]]:
        node = self.graph.producer.get(expr)
        return (node.kind, node.inputs) if isinstance(node, (Unary, Binary)) else ("", ())

    def clip(self, expr: str) -> tuple[str, float, float] | None:
        node = self.graph.producer.get(expr)
        if not isinstance(node, Unary) or node.kind != "clip":
            return None
        return node.inputs[0], node.a, node.b

    def same(self, a: str, b: str) -> bool:
        return a == b


def raise_channel_shuffle(node: Node, graph: Graph) -> Node | None:
    """reshape [1,G,K,H,W] -> swap G and K -> reshape [1,G·K,H,W]  =>  channel_shuffle(groups=G)."""
    if not isinstance(node, Reshape):
        return None
    swap = graph.producer.get(node.inputs[0])
    if not isinstance(swap, Transpose) or swap.perm != (0, 2, 1, 3, 4):
        return None
    split = graph.producer.get(swap.inputs[0])
    if not isinstance(split, Reshape):
        return None
    x = split.inputs[0]
    shape = graph.shape(x)
    one, groups, _, *pixels = graph.shape(split.output)
    if len(shape) != 4 or shape[0] != 1 or one != 1:
        return None  # no channels of one image
    if graph.shape(node.output) != shape or tuple(pixels) != shape[2:]:
        return None
    return ChannelShuffle(inputs=(x,), output=node.output, origin=node.origin, groups=groups)


def merge_pad(node: Node, graph: Graph) -> Node | None:
    """conv2d(pad(x, 0))  =>  conv2d(x) with larger padding; also average pools that count padding.

    Also max_pool2d(pad(x, -inf)) whose windows all see a pixel.
    """
    if not isinstance(node, Conv2d | Pool2d):
        return None
    pad = graph.producer.get(node.inputs[0])
    padding = _padding_with(node, pad, graph)
    if padding is None or pad is None:
        return None
    return replace(node, inputs=(pad.inputs[0], *node.inputs[1:]), padding=padding)


def merge_quantised_pad(node: Node, graph: Graph) -> Made | None:
    """The same where the pad is quantised: pad and rounding change places, as zero is a byte.

    conv2d(dequantize(quantize(pad(x, 0))))  =>  conv2d(dequantize(quantize(x))) with larger padding.
    """
    if not isinstance(node, Conv2d | Pool2d):
        return None
    back = graph.producer.get(node.inputs[0])
    made = graph.producer.get(back.inputs[0]) if isinstance(back, Dequantize) else None
    if not isinstance(back, Dequantize) or not isinstance(made, Quantize):
        return None
    pad = graph.producer.get(made.inputs[0])
    padding = _padding_with(node, pad, graph)
    if padding is None or pad is None or not same_numbers(made, back, graph):
        return None
    if graph.scalar(made.inputs[1]) is None:
        return None
    (x,) = pad.inputs
    data = graph.producer.get(x)
    if isinstance(data, Dequantize) and same_numbers(data, back, graph):  # they are bytes already
        return Made((replace(node, inputs=(x, *node.inputs[1:]), padding=padding),))
    seen = any(
        name in graph.outputs or len(graph.consumers[name]) > 1
        for name in (pad.output, made.output, back.output)
    )
    if seen:
        return None
    names = f"{node.output}.unpadded", f"{node.output}.unpadded.floats"
    tensors = (Tensor(names[0], graph.shape(x), graph.dtype(made.output)), Tensor(names[1], graph.shape(x)))
    return Made(
        (
            replace(made, inputs=(x, *made.inputs[1:]), output=names[0]),
            replace(back, inputs=(names[0], *back.inputs[1:]), output=names[1]),
            replace(node, inputs=(names[1], *node.inputs[1:]), padding=padding),
        ),
        tensors=tensors,
    )


def _padding_with(node: Conv2d | Pool2d, pad: Node | None, graph: Graph) -> Sides | None:
    """The padding of an op that has a pad before it for its own; None where it cannot."""
    if not isinstance(pad, Pad) or pad.mode != "constant" or pad.value != _fill_of(node):
        return None
    if len(pad.widths) != 4 or pad.widths[1] != (0, 0):
        return None
    (top, bottom), (left, right) = pad.widths[2:]
    outer_top, outer_left, outer_bottom, outer_right = node.padding
    padding = (outer_top + top, outer_left + left, outer_bottom + bottom, outer_right + right)
    if isinstance(node, Pool2d):
        sizes = graph.shape(pad.inputs[0])[2:], graph.shape(node.output)[2:]
        windows = (node.kernel, node.stride, node.dilation)
        if node.kind == "avg" and node.padding != (0, 0, 0, 0):
            return None  # the pool's own overhang would be counted too
        if node.kind == "max" and find_blind_window(*sizes, *windows, padding, False) is not None:
            return None
    return padding


def _fill_of(node: Conv2d | Pool2d) -> float | None:
    """What padding is to an op; None where that is no number."""
    if isinstance(node, Pool2d) and not (node.kind == "avg" and node.count_include_pad):
        return -math.inf if node.kind == "max" else None
    return 0.0


def merge_slice_of_pad(node: Node, graph: Graph) -> Node | None:
    """slice(pad(x)) that cuts none of x off  =>  pad(x, narrower)."""
    if not isinstance(node, Slice) or node.step != 1:
        return None
    pad = graph.producer.get(node.inputs[0])
    if not isinstance(pad, Pad) or pad.mode != "constant":
        return None
    before, after = pad.widths[node.axis]
    before, after = before - node.begin, after - (graph.shape(pad.output)[node.axis] - node.end)
    if not (always_before(0, before) and always_before(0, after)):
        return None
    widths = (*pad.widths[: node.axis], (before, after), *pad.widths[node.axis + 1 :])
    return replace(pad, output=node.output, widths=widths)


def merge_reshape(node: Node, graph: Graph) -> Node | None:
    """reshape(reshape(x))  =>  reshape(x)."""
    if not isinstance(node, Reshape):
        return None
    inner = graph.producer.get(node.inputs[0])
    return replace(node, inputs=inner.inputs) if isinstance(inner, Reshape) else None


def merge_transpose(node: Node, graph: Graph) -> Node | None:
    """transpose(transpose(x))  =>  transpose(x);  one that moves only axes of size 1  =>  reshape."""
    if not isinstance(node, Transpose):
        return None
    inner = graph.producer.get(node.inputs[0])
    if isinstance(inner, Transpose):
        return replace(node, inputs=inner.inputs, perm=tuple(inner.perm[p] for p in node.perm))
    shape = graph.shape(node.inputs[0])
    moved = [axis for axis in node.perm if shape[axis] != 1]
    if moved == sorted(moved):
        return Reshape(inputs=node.inputs, output=node.output, origin=node.origin)
    return None


def skip_identity(node: Node, graph: Graph) -> Node | None:
    """op(reshape to the same shape)  =>  op: readers are sent to the source."""
    sources = tuple(_identity_source(name, graph) for name in node.inputs)
    return replace(node, inputs=sources) if sources != node.inputs else None


def _identity_source(name: str, graph: Graph) -> str:
    node = graph.producer.get(name)
    if isinstance(node, Reshape) and graph.shape(node.inputs[0]) == graph.shape(name):
        return node.inputs[0]
    return name


REWRITES: tuple[Rewrite, ...] = (
    skip_identity,
    raise_activation,
    raise_gated_hardsigmoid,
    raise_channel_shuffle,
    merge_slice_of_pad,
    lift_pad,
    merge_pad,
    merge_quantised_pad,
    merge_reshape,
    merge_transpose,
    lower_reshape,
    lift_activation,
    swallow_clamp,
    move_bytes,
    move_requantized,
    pick_bytes,
    quantize_before_reshape,
    extreme_before_reshape,
    drop_requantize,
    *norms.REWRITES,
    *rotary.REWRITES,
    *mixing.REWRITES,
    *strided.REWRITES,
    *attention.REWRITES,
)
