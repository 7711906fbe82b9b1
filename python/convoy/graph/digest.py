"""Name a graph by its content."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from convoy.graph.graph import Graph


def content_hash(graph: Graph, *more: object) -> str:
    """16 hexadecimal digits that differ for graphs of different structure or constants.

    ``more`` goes into the hash by its text: what else decides the code that is made of the graph.
    """
    digest = blake2b(digest_size=8)
    tensors = [graph.tensors[name] for name in sorted(graph.tensors)]
    digest.update(repr((graph.inputs, graph.outputs, graph.nodes, tensors, graph.batch, more)).encode())
    for name in sorted(graph.constants):
        digest.update(np.ascontiguousarray(graph.constants[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
