"""Sound and other signals: lengths that are likely far longer than those of sequences.

A network reads samples one by one, or cuts them into frames of some hundreds and reads one for each frame.
"""

from __future__ import annotations

from collections.abc import Iterable

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.sizes import Symbol, hint, is_open, symbols

LIKELY_SIGNAL = 16000
"""Samples, where nothing else is known: one second of speech."""
LIKELY_FRAMES = 100
"""As many are in a second."""
FEW = 8
"""So short is no map before a network has halved it several times."""


def expect_signals(graph: Graph) -> Graph:
    """The graph, its open lengths likely such that what reads a signal reads ``LIKELY_SIGNAL`` samples.

    A convolution along one row of one channel reads a signal: a sequence has features, an image has rows.
    Where all that convolutions read along a size are ``FEW`` pixels, these are likely ``LIKELY_FRAMES``.
    """
    longest: dict[Symbol, int] = {}
    for node in graph.nodes:
        if isinstance(node, Conv2d):
            *others, length = graph.shape(node.inputs[0])
            if others == [1, 1, 1] and is_open(length):
                _lengthen(symbols(length), hint(length), LIKELY_SIGNAL)
            for size in filter(is_open, graph.shape(node.inputs[0])[2:]):
                longest |= {s: max(longest.get(s, 0), hint(size)) for s in symbols(size)}
    for symbol, length in longest.items():
        if length <= FEW:
            _lengthen([symbol], length, LIKELY_FRAMES)
    return graph


def _lengthen(found: Iterable[Symbol], length: int, likely: int) -> None:
    for symbol in found:
        symbol.hint *= -(-likely // max(length, 1))
