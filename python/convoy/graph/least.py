"""The smallest sizes of a call: those at which every rule of a graph holds."""

from __future__ import annotations

from collections.abc import Container, Sequence

from convoy.errors import OpenSizeError
from convoy.graph.graph import Graph
from convoy.graph.sizes import Symbol
from convoy.graph.sizes import symbols as symbols_of
from convoy.graph.verify import verify

MOST = 4096
"""Where a rule is still open, no size decides it."""


def settle_least(graph: Graph, often_none: Container[Symbol] = (), *, filled: bool = False) -> Graph:
    """The graph, each of its symbols with the least value at which its rules hold.

    A 7x7 convolution without padding needs 7 pixels: fewer are an error of the call.  None are enough where
    an input is only put beside others.  Likely values are such that every tensor has elements.

    Parameters
    ----------
    often_none : Container[Symbol]
        Of these 0 is tried even where other tensors have none then: calls with elements elsewhere have it.
        So it is of those that no output has: results are made of nothing, as by an attention to no keys.
    filled : bool
        The least values, too, are such.

    Raises
    ------
    OpenSizeError
        If a rule holds at no size, or whether it does is not known.
    """
    symbols = [axis.symbol for axis in graph.open_axes]
    _raise_all(graph, symbols, filled=True)
    for symbol in symbols:
        _try_none(graph, symbol, filled=True)
        symbol.hint = max(symbol.hint, symbol.least)
    if not filled:
        made = {s for name in graph.outputs for size in graph.shape(name) for s in symbols_of(size)}
        without = [s for s in symbols if s.least == 0 or s in often_none or s not in made]
        if any(symbol.least > 1 for symbol in symbols):
            for symbol in symbols:
                symbol.least = 1
            _raise_all(graph, symbols, filled=False)
        for symbol in without:
            _try_none(graph, symbol, filled=False)
    return graph


def _try_none(graph: Graph, symbol: Symbol, *, filled: bool) -> None:
    if symbol.least == 1:
        symbol.least = 0
        symbol.least = 0 if _holds(graph, filled) else 1


def _raise_all(graph: Graph, symbols: Sequence[Symbol], *, filled: bool) -> None:
    if symbols and not _holds(graph, filled):
        _raise_least(graph, symbols, MOST, filled)
        verify(graph, filled=filled)
        for symbol in symbols:
            _raise_least(graph, [symbol], symbol.least, filled)


def _raise_least(graph: Graph, symbols: Sequence[Symbol], most: int, filled: bool) -> None:
    """The least value of these symbols together, at most ``most``, where the rules hold."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        for symbol in symbols:
            symbol.least = middle
        low, high = (low, middle) if _holds(graph, filled) else (middle, high)
    for symbol in symbols:
        symbol.least = high


def _holds(graph: Graph, filled: bool) -> bool:
    try:
        verify(graph, filled=filled)
    except OpenSizeError:
        return False
    return True
