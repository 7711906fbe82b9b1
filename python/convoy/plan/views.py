"""Tensors that are another one, or a range of its channels: no step makes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convoy.graph.graph import Graph
from convoy.graph.ops import Concat, Node, Pad, Reshape, Sides, Slice
from convoy.graph.sizes import is_open
from convoy.plan.fuse import Fusion
from convoy.plan.maps import image_shape


@dataclass(frozen=True)
class View:
    """A tensor that is a range of channels of ``source``."""

    source: str
    channel: int


def find_views(
    graph: Graph, fusions: Sequence[Fusion], blocked: Mapping[str, bool], lanes: int
) -> dict[str, View]:
    """Concat operands that can be computed in place, and slices that need no copy.

    Both need channels that begin at a block; an operand also has to fill its last block unless
    nothing follows it.
    """
    views: dict[str, View] = {}
    made = {g.output for g in fusions if blocked[g.output] and find_border(g.anchor, graph) is None}
    for fusion in fusions:
        node = fusion.anchor
        if isinstance(node, Slice) and blocked[node.output] and blocked.get(node.inputs[0]):
            whole = node.end == graph.shape(node.inputs[0])[1]
            if node.begin % lanes == 0 and (whole or node.end % lanes == 0):
                views[node.output] = View(node.inputs[0], node.begin)
    for fusion in fusions:
        node = fusion.anchor
        if not isinstance(node, Concat) or not blocked[node.output]:
            continue
        channel = 0
        for i, name in enumerate(node.inputs):
            channels = graph.shape(name)[1]
            last = i == len(node.inputs) - 1
            fits = channel % lanes == 0 and (last or channels % lanes == 0)
            if fits and name in made and name not in views and node.inputs.count(name) == 1:
                views[name] = View(node.output, channel)
            channel += channels
    return views


def find_outputs_in_other_shapes(graph: Graph) -> dict[str, str]:
    """The tensors that are an output in another shape, and that output: they can be computed there.

    None that is an output itself, or that no node makes.
    """
    makers = {node.output: node for node in graph.nodes}
    found: dict[str, str] = {}
    for output in graph.outputs:
        name = output
        while isinstance(maker := makers.get(name), Reshape):
            name = maker.inputs[0]
        if name in makers and name not in graph.outputs:
            found.setdefault(name, output)
    return found


def find_border(node: Node, graph: Graph) -> Sides | None:
    """The zeros that a node puts around the images of floats, where it does nothing else."""
    if not isinstance(node, Pad) or node.mode != "constant" or node.value != 0.0:
        return None
    if len(node.widths) != 4 or any(node.widths[1]) or graph.dtype(node.output) != "float32":
        return None
    if image_shape(graph.shape(node.output)) is None or is_open((node.widths, graph.shape(node.output))):
        return None
    (top, bottom), (left, right) = node.widths[2:]
    return top, left, bottom, right
