"""What the kernel of a group computes, in a line."""

from __future__ import annotations

from convoy.graph.graph import Graph
from convoy.graph.messages import op_name
from convoy.graph.ops import Binary, Conv2d, ConvTranspose2d, MatMul, Unary
from convoy.plan.fuse import Group
from convoy.plan.step import Note


def make_note(group: Group, graph: Graph) -> Note:
    """``conv2d [..] * [..] + bias + residual, clip -> [..]; name``, ``add mul relu [..] -> [..]; name``."""
    anchor = group.anchor
    chain = group.nodes if isinstance(anchor, (Unary, Binary)) else [anchor]
    text = f"{' '.join(map(op_name, chain))} {list(graph.shape(anchor.inputs[0]))}"
    if isinstance(anchor, (Conv2d, ConvTranspose2d, MatMul)):
        text += " * " + str(list(graph.shape(anchor.inputs[1])))
    text += " + bias" * bool(group.bias)
    text += f", {group.inner.kind}" if group.inner else ""
    text += " + residual" * bool(group.residual)
    text += f", {group.outer.kind}" if group.outer else ""
    text += " -> " + str(list(graph.shape(group.output)))
    return Note(op_name(anchor), f"{text}; {anchor.origin}" if anchor.origin else text)
