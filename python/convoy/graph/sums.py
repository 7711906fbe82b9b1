"""Sums of convolutions of one input: since a convolution is linear, one convolution computes them all.

Networks that are trained in several branches and not rewritten before their export are full of them
(RepVGG, MobileOne, FastViT): a block adds up convolutions of several windows and a batch norm.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from convoy.graph.fusion import kind_of_addition, other_input
from convoy.graph.graph import Graph
from convoy.graph.merging import Made
from convoy.graph.ops import Binary, Conv2d, Node

MOST_SCALES = 4
"""Products with constants and sums with them in a branch, at most; a batch norm is two."""


@dataclass(frozen=True)
class _Branch:
    """A convolution and what it computes with; ``conv`` is None where the branch is its input, scaled."""

    conv: Conv2d | None
    x: str
    weight: NDArray[np.float64]
    """[out channels, in channels a group, rows, columns]"""
    bias: NDArray[np.float64]
    """[out channels]"""
    groups: int

    def rows(self, axis: int) -> list[int]:
        """Which rows (axis 0) or columns (1) its taps read, counted from output times stride."""
        taps = range(self.weight.shape[2 + axis])
        if self.conv is None:
            return [0]
        return [tap * self.conv.dilation[axis] - self.conv.padding[axis] for tap in taps]

    def holds(self, other: _Branch) -> bool:
        """Does it read whatever the other reads, so that other weights are all that it needs?"""
        stride = other.conv.stride if other.conv is not None else (1, 1)
        return (
            self.conv is not None
            and (self.x, self.conv.stride) == (other.x, stride)
            and other.groups % self.groups == 0
            and all(set(other.rows(axis)) <= set(self.rows(axis)) for axis in (0, 1))
        )

    def plus(self, other: _Branch) -> NDArray[np.float64]:
        """The weight that computes both, where it ``holds`` the other."""
        total: NDArray[np.float64] = self.weight.copy()
        rows, columns = ([self.rows(axis).index(at) for at in other.rows(axis)] for axis in (0, 1))
        outs, a_group = other.weight.shape[:2]
        for channel in range(outs):
            first = channel // (outs // other.groups) * a_group  # of the input channels it reads
            first -= channel // (outs // self.groups) * total.shape[1]  # counted in its new group
            total[channel, first : first + a_group, np.array(rows)[:, None], columns] += other.weight[
                channel
            ].transpose(1, 2, 0)
        return total


def merge_branches(node: Node, graph: Graph) -> Made | None:
    """conv2d(x, w) + conv2d(x, v)  =>  conv2d(x, w + v), also with x · s + t in place of a convolution.

    The window of one of them has to hold that of the other.  Where the input is infinite, so is the result,
    even where it was a difference of infinities.  So x itself, a residual, stays one.
    """
    if not isinstance(node, Binary) or node.kind != "add":
        return None
    kinds = {(graph.shape(name), graph.dtype(name)) for name in (node.output, *node.inputs)}
    if len(kinds) > 1 or len(graph.shape(node.output)) != 4 or graph.dtype(node.output) != "float32":
        return None
    branches = [_branch(name, graph) for name in node.inputs]
    for wide, narrow in (branches, branches[::-1]):
        if wide.conv is None or narrow.x in node.inputs or not wide.holds(narrow):
            continue
        arrays = {"weight": wide.plus(narrow), "bias": wide.bias + narrow.bias}
        if any(not np.abs(array).max(initial=0) <= np.finfo(np.float32).max for array in arrays.values()):
            return None
        constants = {f"{node.output}.{name}": array.astype(np.float32) for name, array in arrays.items()}
        made = replace(wide.conv, inputs=(wide.x, *constants), output=node.output)
        return Made((made,), constants)
    return None


def _branch(name: str, graph: Graph, most: int = MOST_SCALES) -> _Branch:
    """What the tensor is as a branch: a convolution with constant weights, or an input of one itself."""
    node = graph.producer.get(name)
    channels = graph.shape(name)[1]
    if node is None or name in graph.outputs or len(graph.consumers[name]) != 1:
        return _input(name, channels)
    if isinstance(node, Binary) and node.kind in ("add", "mul"):
        number = next((x for x in node.inputs if x in graph.constants), None)
        if number is None:
            return _input(name, channels)
        x, shape = other_input(node, number), graph.shape(name)
        kind = kind_of_addition(graph.shape(number), shape, constant=True, channel=1)
        if kind != "bias" or graph.shape(x) != shape or not most:
            return _input(name, channels)
        each = np.broadcast_to(graph.constants[number].reshape(-1).astype(np.float64), (channels,))
        inner = _branch(x, graph, most - 1)
        if node.kind == "add":
            return replace(inner, bias=inner.bias + each)
        return replace(inner, weight=inner.weight * each[:, None, None, None], bias=inner.bias * each)
    if isinstance(node, Conv2d) and all(constant in graph.constants for constant in node.inputs[1:]):
        weight, *bias = (graph.constants[constant].astype(np.float64) for constant in node.inputs[1:])
        return _Branch(node, node.inputs[0], weight, bias[0] if bias else np.zeros(channels), node.groups)
    return _input(name, channels)


def _input(name: str, channels: int) -> _Branch:
    """The tensor itself: as if a depthwise convolution of one tap had computed it."""
    return _Branch(None, name, np.ones((channels, 1, 1, 1)), np.zeros(channels), channels)
