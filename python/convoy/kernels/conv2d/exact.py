"""Winograd's F(4x4, 3x3) in integers: where it is exact.

Sums are int32 modulo 2^32, and what comes out of them is 64 times an output
(``csrc/kernels/conv2d_winograd_integers.h``).  So it is a matter of the weights whether all outputs fit.
"""

from __future__ import annotations

import numpy as np

from convoy.graph.dtypes import range_of
from convoy.graph.graph import Graph
from convoy.graph.ops import Dequantize

MOST_OUTPUT = (1 << 31) // 64 - 1
"""The largest output, of either sign."""


def is_exact(data: Dequantize, weight: Dequantize, graph: Graph) -> bool:
    """Whether no bytes of ``data`` give an output that is too large; its weights are whole numbers."""
    w = graph.constants[weight.inputs[0]]
    _, most = range_of("uint8")
    zero = int(graph.constants[data.inputs[2]].item())
    flat = w.reshape(len(w), -1)
    if flat.shape[1] * 128 * max(zero, most - zero) <= MOST_OUTPUT:
        return True
    size = np.abs(flat.astype(np.int16)).sum(axis=1, dtype=np.int64)
    above = (size + flat.sum(axis=1, dtype=np.int64)) // 2
    below = size - above
    highest = above * (most - zero) + below * zero
    lowest = above * zero + below * (most - zero)
    return bool(max(highest.max(), lowest.max()) <= MOST_OUTPUT)
