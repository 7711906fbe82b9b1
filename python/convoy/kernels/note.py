"""What the kernel of a fusion computes, in a line."""

from __future__ import annotations

from convoy.graph.graph import Graph
from convoy.graph.messages import op_name
from convoy.graph.ops import Binary, Conv2d, ConvTranspose2d, Dequantize, MatMul, Quantize, Unary
from convoy.plan.fuse import Fusion
from convoy.plan.step import Note


def make_note(fusion: Fusion, graph: Graph) -> Note:
    """``conv2d [..] * [..] + bias + residual, clip -> [..]; name``, ``add mul relu [..] -> [..]; name``."""
    anchor = fusion.anchor
    chain = fusion.nodes if isinstance(anchor, (Unary, Binary, Quantize, Dequantize)) else [anchor]
    text = f"{' '.join(map(op_name, chain))} {list(graph.shape(anchor.inputs[0]))}"
    if isinstance(anchor, (Conv2d, ConvTranspose2d, MatMul)):
        text += " * " + str(list(graph.shape(anchor.inputs[1])))
    text += ", scaled" * (fusion.scale is not None)
    text += " + bias" * bool(fusion.bias)
    text += f", {fusion.inner.kind}" if fusion.inner else ""
    text += " + residual" * bool(fusion.residual)
    text += f", {fusion.outer.kind}" if fusion.outer else ""
    text += " -> " + str(list(graph.shape(fusion.output)))
    return Note(op_name(anchor), f"{text}; {anchor.origin}" if anchor.origin else text)
