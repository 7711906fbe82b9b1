"""Fuse nodes: an anchor op with what joins it, or a chain of elementwise ops.

A fusion runs where its last node stood, so whatever it reads is ready by then.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from convoy.graph.fusion import Kernel, find_kernels, other_input
from convoy.graph.graph import Graph
from convoy.graph.messages import op_name
from convoy.graph.ops import Binary, Dequantize, Node, Quantize, Unary
from convoy.graph.quantised import same_numbers


@dataclass
class Fusion:
    """out = outer(inner(anchor + bias) + residual); or the nodes of a chain, one after another."""

    nodes: list[Node]
    name: str = ""
    """``conv2d_bias_relu``, or the ops of a chain."""
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
        """What the fusion reads and does not make itself, constants too."""
        made = {node.output for node in self.nodes}
        return tuple(dict.fromkeys(n for node in self.nodes for n in node.inputs if n not in made))


def fuse(graph: Graph, disabled: Collection[str] = ()) -> list[Fusion]:
    """Every node of the graph in exactly one fusion, in running order.

    Anchors come first: a residual is added by the kernel of an anchor, not by a chain that reads it, too.

    Parameters
    ----------
    disabled : Collection[str]
        Patterns, such as ``convoy.conv2d_relu``, that are not to become kernels.
    """
    fusions = [_make_fusion(kernel) for kernel in find_kernels(graph, disabled).values()]
    claimed = {node.output for fusion in fusions for node in fusion.nodes}
    for node in graph.nodes:
        if node.output not in claimed:
            chain = _find_chain(node, graph, claimed)
            fusions.append(Fusion(chain, "_".join(map(op_name, chain))))
            claimed.update(node.output for node in chain)
    position = {node.output: i for i, node in enumerate(graph.nodes)}
    return sorted(fusions, key=lambda g: position[g.output])


def _make_fusion(kernel: Kernel[Node]) -> Fusion:
    fusion = Fusion(list(kernel.ops), kernel.name)
    data = kernel.anchor.output
    for part in kernel.parts:
        node = part.ops[-1] if part.ops else kernel.anchor
        if part.slot == "bias":
            fusion.bias.append(other_input(node, data) if part.ops else node.inputs[2])
        elif part.slot == "add":
            fusion.residual = other_input(node, data)
        else:
            assert isinstance(node, Unary)
            setattr(fusion, part.slot, node)
        data = node.output
    return fusion


def _find_chain(node: Node, graph: Graph, claimed: Collection[str]) -> list[Node]:
    """The node and, if it is elementwise, the elementwise ops of its shape that alone read one another.

    Quantising is one of them with the ``Dequantize`` that alone reads it.
    """
    chain = _elementwise(node, graph, claimed)
    last = chain
    while last and last[-1].output not in graph.outputs:
        readers = graph.consumers[last[-1].output]
        if len(readers) != 1 or readers[0].output in claimed:
            break
        same = graph.shape(readers[0].output) == graph.shape(last[-1].output)
        if readers[0].inputs.count(last[-1].output) != 1 or not same:
            break
        last = _elementwise(readers[0], graph, claimed)
        chain += last
    return chain or [node]


def _elementwise(node: Node, graph: Graph, claimed: Collection[str]) -> list[Node]:
    """The nodes of one operation of a chain that begins here; none where that is no such."""
    if isinstance(node, Unary | Binary):
        return [node]
    readers = graph.consumers[node.output]
    if not isinstance(node, Quantize) or node.output in graph.outputs or len(readers) != 1:
        return []
    (back,) = readers
    if not isinstance(back, Dequantize) or back.output in claimed or graph.scalar(node.inputs[1]) is None:
        return []
    return [node, back] if same_numbers(node, back, graph) else []
