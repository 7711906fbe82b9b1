"""Whether products of bytes come out as those of the floats they stand for.

Kernels multiply scales before they know a sum: with huge ones the product is infinite in float32, and a sum
of 0 no number.  Where floats would overflow, what comes out depends on their order, so floats compute it.
"""

from __future__ import annotations

from math import prod

import numpy as np

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, ConvTranspose2d, MatMul, Product
from convoy.plan.fuse import Fusion

MOST_SUM = 2.0**31
"""Sums are int32."""
MOST_STEPS = 2.0**8
"""Between a residual's byte and its zero point."""
MOST_RATIO = 2.0**15
"""A residual's scale in those of the result: with more its zero point is not 0 after rounding."""


def scales_fit(fusion: Fusion, graph: Graph) -> bool:
    """Whether all that a product's kernel of bytes computes is finite in float32, and exact enough."""
    if not isinstance(fusion.anchor, Conv2d | ConvTranspose2d | MatMul | Product):
        return True
    most = float(np.finfo(np.float32).max)
    factors = [_largest(fusion, graph, name) for name in fusion.anchor.inputs[:2]]
    in_bytes = fusion.residual is not None and fusion.bytes_of(fusion.residual) is not None
    added = _largest(fusion, graph, fusion.residual or "") if in_bytes else 0.0
    bias = sum(float(np.abs(graph.constants[name]).max(initial=0)) for name in fusion.bias)
    rounded = [q for q in (fusion.quantize, fusion.held and fusion.held[0]) if q is not None]
    units = [float(graph.constants[q.inputs[1]].min()) for q in rounded if q.inputs[1] in graph.constants]
    largest = max(prod(factors) * MOST_SUM, added * MOST_STEPS)
    return (
        largest / min([1.0, *units]) <= most
        and not (np.isfinite(bias) and bias / min([1.0, *units]) > most)
        and all(added <= MOST_RATIO * unit for unit in units)
    )


def _largest(fusion: Fusion, graph: Graph, name: str) -> float:
    """The largest scale of what is read as bytes, or number of a constant; 1 for what only a run knows."""
    made = fusion.bytes_of(name)
    known = graph.constants.get(made.inputs[1] if made else name)
    return 1.0 if known is None else float(np.abs(known).max(initial=0))
