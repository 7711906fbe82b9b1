"""Group nodes into kernels: an anchor op with its epilogue, or a chain of elementwise ops.

A group runs where its last node stood, so whatever its epilogue reads is ready by then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Conv2d, ConvTranspose2d, MatMul, Node, Pool2d, Unary

ACTIVATIONS = frozenset({
    "relu", "clip", "leaky_relu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid", "gelu",
    "gelu_tanh", "elu",
})  # fmt: skip
"""Unary kinds an epilogue can end with."""


@dataclass
class Group:
    """out = outer(inner(anchor + bias) + residual); or the nodes of a chain, one after another."""

    nodes: list[Node]
    bias: list[str] = field(default_factory=list)
    """Constants of one value per output channel, summed."""
    inner: Unary | None = None
    residual: str | None = None
    outer: Unary | None = None

    @property
    def anchor(self) -> Node:
        return self.nodes[0]

    @property
    def output(self) -> str:
        return self.nodes[-1].output

    @property
    def reads(self) -> tuple[str, ...]:
        """What the group reads and does not make itself, constants too."""
        made = {node.output for node in self.nodes}
        return tuple(dict.fromkeys(n for node in self.nodes for n in node.inputs if n not in made))


Extend = Callable[[Group, Node, Graph], bool]
"""Takes a node into a group's epilogue or chain, or says that it does not belong there."""


def fuse(graph: Graph) -> list[Group]:
    """Every node of the graph in exactly one group, in running order."""
    claimed: set[str] = set()
    groups: list[Group] = []
    for node in graph.nodes:
        if node.output in claimed:
            continue
        group = Group([node])
        claimed.add(node.output)
        if isinstance(node, (Conv2d, ConvTranspose2d, MatMul)):
            group.bias.extend(node.inputs[2:])
            _absorb(group, graph, claimed, _extend_epilogue)
        elif isinstance(node, Pool2d):
            _absorb(group, graph, claimed, _extend_activation)
        elif isinstance(node, (Unary, Binary)):
            _absorb(group, graph, claimed, _extend_chain)
        groups.append(group)
    position = {node.output: i for i, node in enumerate(graph.nodes)}
    return sorted(groups, key=lambda g: position[g.output])


def _absorb(group: Group, graph: Graph, claimed: set[str], extend: Extend) -> None:
    """Take the only reader of the group's output into the group for as long as ``extend`` agrees."""
    while group.output not in graph.outputs:
        readers = graph.consumers[group.output]
        if len(readers) != 1 or readers[0].output in claimed:
            return
        node = readers[0]
        if node.inputs.count(group.output) != 1 or not extend(group, node, graph):
            return
        group.nodes.append(node)
        claimed.add(node.output)


def _extend_epilogue(group: Group, node: Node, graph: Graph) -> bool:
    if isinstance(node, Unary) and node.kind in ACTIVATIONS:
        if group.residual is None and group.inner is None:
            group.inner = node
            return True
        if group.residual is not None and group.outer is None:
            group.outer = node
            return True
        return False
    if not isinstance(node, Binary) or node.kind != "add":
        return False
    (other,) = (name for name in node.inputs if name != group.output)
    if graph.shape(node.output) != graph.shape(group.output):
        return False
    if other in graph.constants:
        if group.inner or group.residual or not _per_channel(other, group.anchor, graph):
            return False
        group.bias.append(other)
        return True
    if group.residual or group.outer or graph.shape(other) != graph.shape(group.output):
        return False
    group.residual = other
    return True


def _per_channel(constant: str, anchor: Node, graph: Graph) -> bool:
    """One value per output channel (or one for all): [C, 1, 1] beside a conv, [N] beside a matmul."""
    out = graph.shape(anchor.output)
    axis = len(out) - 1 if isinstance(anchor, MatMul) else 1
    shape = graph.shape(constant)
    aligned = (1,) * (len(out) - len(shape)) + shape
    return all(d == 1 or (i == axis and d == out[axis]) for i, d in enumerate(aligned))


def _extend_activation(group: Group, node: Node, graph: Graph) -> bool:
    if group.outer is None and isinstance(node, Unary) and node.kind in ACTIVATIONS:
        group.outer = node
        return True
    return False


def _extend_chain(group: Group, node: Node, graph: Graph) -> bool:
    return isinstance(node, (Unary, Binary)) and graph.shape(node.output) == graph.shape(group.output)
