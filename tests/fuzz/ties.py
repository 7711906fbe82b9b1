"""How far an answer may be from the reference where numbers are rounded to bytes on the way.

A number that lies between two bytes, but for what floats round, may become either; what is computed from it
differs by what that is worth.  Elsewhere nothing is forgiven.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from convoy.graph import Graph, Tensor
from convoy.graph.graph import Array
from convoy.graph.ops import Binary, Node, Quantize
from convoy.graph.reference import run

NEAR = 2e-3
"""Units from a tie, within which a number may fall either way: floats are off by some 1e-4 of a unit."""
DRAWS = 24
"""Ways of falling that are tried: of two ties, one behind the other, each way is in a quarter of them."""
FLOAT32 = 2e-5
"""Error, of the largest output: what float32 itself may differ by on random graphs."""


def worst_error(
    graph: Graph, inputs: Sequence[Array], got: Sequence[Array], want: Sequence[Array]
) -> float:
    """The largest error of outputs, of the largest number of each, beyond what ties explain.

    Parameters
    ----------
    want : Sequence[Array]
        What the reference gives in float64.
    """
    wide = [np.abs(a.astype(np.float64) - b) for a, b in zip(got, want, strict=True)]
    largest = [max(float(np.abs(b).max()), 1e-3) for b in want]
    errors = [float(off.max()) / most for off, most in zip(wide, largest, strict=True)]
    if is_quantised(graph) and max(errors) > FLOAT32:
        beyond = [off - most for off, most in zip(wide, slack(graph, inputs, want), strict=True)]
        errors = [max(float(off.max()), 0) / most for off, most in zip(beyond, largest, strict=True)]
    return max(errors)


def is_quantised(graph: Graph) -> bool:
    """Are there numbers that are rounded to bytes?"""
    return any(isinstance(node, Quantize) for node in graph.nodes)


def slack(graph: Graph, inputs: Sequence[Array], want: Sequence[Array]) -> list[Array]:
    """How far each number of each output may be from the reference's, by ties alone; 0 for most.

    That is how far the ways of falling are apart: one unit at a tie, and of a sum of many more than it is
    from where it is in the middle.  What many ties make together no draw may hit: the definition in floats
    is one of the ways.
    """
    if not is_quantised(graph):
        return [np.zeros(array.shape) for array in want]
    rng = np.random.default_rng(0)
    falls = [list(want), run(graph, inputs, np.float32)]
    for draw in range(DRAWS):
        falls.append(run(_push(graph, rng, each=draw % 2 == 1), inputs, np.float64))
    stacks = (np.stack(ways).astype(np.float64) for ways in zip(*falls, strict=True))
    return [stack.max(axis=0) - stack.min(axis=0) for stack in stacks]


def _push(graph: Graph, rng: np.random.Generator, *, each: bool) -> Graph:
    """The graph with what is quantised pushed by ``NEAR``: each number up or down, or all of a tensor."""
    nodes: list[Node] = []
    tensors, constants = dict(graph.tensors), dict(graph.constants)
    for node in graph.nodes:
        if isinstance(node, Quantize):
            x, push, pushed = node.inputs[0], f"{node.output}_push", f"{node.output}_pushed"
            shape = graph.shape(x)
            ways = np.broadcast_to(rng.choice((-1.0, 1.0), shape if each else ()), shape)
            along = (-1, *(1,) * (len(shape) - 1 - node.axis))
            constants[push] = NEAR * ways * graph.constants[node.inputs[1]].reshape(along)
            tensors |= {push: Tensor(push, shape), pushed: Tensor(pushed, shape)}
            nodes.append(Binary(inputs=(x, push), output=pushed, kind="add"))
            node = replace(node, inputs=(pushed, *node.inputs[1:]))
        nodes.append(node)
    return replace(graph, nodes=tuple(nodes), tensors=tensors, constants=constants)
