"""The smallest sizes of a call: those at which every rule of a graph holds."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.errors import OpenSizeError
from convoy.graph.graph import Graph
from convoy.graph.sizes import Symbol
from convoy.graph.verify import verify

MOST = 4096
"""Where a rule is still open, no size decides it."""


def settle_least(graph: Graph) -> Graph:
    """The graph, each of its symbols with the least value at which its rules hold.

    A 7x7 convolution without padding needs 7 pixels: fewer are an error of the call.  None are enough where
    an input is only put beside others.

    Raises
    ------
    OpenSizeError
        If a rule holds at no size, or whether it does is not known.
    """
    symbols = [axis.symbol for axis in graph.open_axes]
    if symbols and not _holds(graph):
        _raise_least(graph, symbols, MOST)
        verify(graph)
        for symbol in symbols:
            _raise_least(graph, [symbol], symbol.least)
    for symbol in symbols:
        if symbol.least == 1:
            symbol.least = 0
            symbol.least = 0 if _holds(graph) else 1
        symbol.hint = max(symbol.hint, symbol.least)
    return graph


def _raise_least(graph: Graph, symbols: Sequence[Symbol], most: int) -> None:
    """The least value of these symbols together, at most ``most``, where the rules hold."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        for symbol in symbols:
            symbol.least = middle
        low, high = (low, middle) if _holds(graph) else (middle, high)
    for symbol in symbols:
        symbol.least = high


def _holds(graph: Graph) -> bool:
    try:
        verify(graph)
    except OpenSizeError:
        return False
    return True
