"""Sound and other signals: lengths that are likely far longer than those of sequences."""

from __future__ import annotations

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.sizes import hint, is_open, symbols

LIKELY_SIGNAL = 16000
"""Samples, where nothing else is known: one second of speech."""


def expect_signals(graph: Graph) -> Graph:
    """The graph, its open lengths likely such that what reads a signal reads ``LIKELY_SIGNAL`` samples.

    A convolution along one row of one channel reads a signal: a sequence has features, an image has rows.
    """
    for node in graph.nodes:
        if isinstance(node, Conv2d):
            *others, length = graph.shape(node.inputs[0])
            if others == [1, 1, 1] and is_open(length):
                factor = -(-LIKELY_SIGNAL // max(hint(length), 1))
                for symbol in symbols(length):
                    symbol.hint *= factor
    return graph
