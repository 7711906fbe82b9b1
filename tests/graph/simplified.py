"""What ``simplify`` leaves of a graph, seen to be valid and to compute the same."""

from __future__ import annotations

import numpy as np

from building import Builder
from convoy.graph import Graph
from convoy.graph.messages import op_name
from convoy.graph.reference import run
from convoy.graph.rewrite import simplify
from convoy.graph.verify import verify


def simplified(b: Builder, *outputs: str) -> Graph:
    """The graph after simplify, which keeps it valid and its values."""
    before = b.graph(*outputs)
    verify(before)
    after = simplify(before)
    verify(after)
    arrays = b.arrays()
    for want, got in zip(run(before, arrays), run(after, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    return after


def ops(graph: Graph) -> list[str]:
    return [op_name(node) for node in graph.nodes]
