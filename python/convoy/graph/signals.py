"""Sound and other signals: lengths that are likely far longer than those of sequences.

A network reads samples one by one, or cuts them into frames of some hundreds and reads one for each frame.
No length is likely so short that nothing is left behind the cut.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.sizes import Symbol, bind, has_extremes, hint, is_open, symbols

LIKELY_SIGNAL = 16000
"""Samples, where nothing else is known: one second of speech."""
LIKELY_FRAMES = 100
"""As many are in a second."""
FEW = 8
"""So short is no map before a network has halved it several times."""
DOUBLINGS = 16
"""As often at most is a likely length doubled for elements to be left of it."""


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
    expect_elements(chain.from_iterable(tensor.shape for tensor in graph.tensors.values()))
    return graph


def expect_elements(lengths: Iterable[int]) -> None:
    """Each length is likely to have an element: what it is cut from is likely long enough.

    Estimates would else be made of lengths below 0.  One that is at least 0 by a maximum may well be 0.
    """
    for length in dict.fromkeys(filter(is_open, lengths)):
        for symbol in () if has_extremes(length) else symbols(length):
            longer = (symbol.hint << times for times in range(DOUBLINGS))
            symbol.hint = next((n for n in longer if bind(length, {symbol: n}) >= 1), symbol.hint)


def _lengthen(found: Iterable[Symbol], length: int, likely: int) -> None:
    for symbol in found:
        symbol.hint *= -(-likely // max(length, 1))
