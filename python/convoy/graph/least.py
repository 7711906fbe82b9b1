"""The smallest sizes of a call: those at which every rule of a graph holds."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from convoy.errors import OpenSizeError
from convoy.graph.graph import Graph
from convoy.graph.sizes import Size, Symbol, bind, bounds, substitute
from convoy.graph.sizes import symbols as symbols_of
from convoy.graph.verify import verify

MOST = 4096
"""Where a rule is still open, no size decides it."""
_NOTHING: Mapping[Symbol, int] = {}


def settle_least(
    graph: Graph,
    often_none: Container[Symbol] = (),
    made_of: Mapping[Symbol, int] = _NOTHING,
    *,
    filled: bool = False,
) -> Graph:
    """The graph, each of its symbols with the least value at which its rules hold.

    A 7x7 convolution without padding needs 7 pixels: fewer are an error of the call.  None are enough where
    an input is only put beside others.  Likely values are such that every tensor has elements.

    Parameters
    ----------
    often_none : Container[Symbol]
        Of these 0 is tried even where other tensors have none then: calls with elements elsewhere have it.
        So it is of those without which an output has elements: of the others of a list, or of none, as by
        an attention to no keys.
    made_of : Mapping[Symbol, int]
        What the symbols are in those of a network, where that is known.  Halves of a length that has to be
        7 are 3 and 4 at least, and not 4 and 3: what one lacks the other has.
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
        without = [s for s in symbols if s.least == 0 or s in often_none or _leaves_elements(graph, s)]
        if any(symbol.least > 1 for symbol in symbols):
            for symbol in symbols:
                symbol.least = 1
            _raise_all(graph, symbols, filled=False)
        for symbol in without:
            _try_none(graph, symbol, filled=False)
    if any(_has_exchange(graph, symbol, symbols, filled) for symbol in symbols):
        _raise_along(graph, {symbol: made_of.get(symbol, 0) for symbol in symbols}, filled)
    return graph


def _leaves_elements(graph: Graph, symbol: Symbol) -> bool:
    """Has an output elements where a size is 0?  Else there is nothing to compute."""
    shapes = map(graph.shape, graph.outputs)
    return any(all(substitute(size, symbol, 0) != 0 for size in shape) for shape in shapes)


def _has_exchange(graph: Graph, symbol: Symbol, symbols: Sequence[Symbol], filled: bool) -> bool:
    """Do the rules hold for a smaller size than the least, where the others are large?"""
    if symbol.least < 1 or len(symbols) == 1:
        return False
    before = [other.least for other in symbols]
    for other in symbols:
        other.least = symbol.least - 1 if other is symbol else max(other.least, MOST)
    holds = _holds(graph, filled)
    for other, least in zip(symbols, before, strict=True):
        other.least = least
    return holds


def _raise_along(graph: Graph, made_of: Mapping[Symbol, int], filled: bool) -> None:
    """The least sizes that one of a network makes of all, if they grow with it and are below these."""
    given = {of for size in made_of.values() for of in symbols_of(size)}
    if len(given) != 1 or not all(map(symbols_of, made_of.values())):
        return
    (of,) = given
    if not all(_grows(size, of) for size in made_of.values()):
        return
    before = [symbol.least for symbol in made_of]
    low, high = 0, MOST
    while high - low > 1:
        middle = (low + high) // 2
        _give(made_of, of, middle)
        low, high = (low, middle) if _holds(graph, filled) else (middle, high)
    _give(made_of, of, high)
    missed = any(symbol.least < least for symbol, least in zip(made_of, before, strict=True))
    found = missed and _holds(graph, filled)
    for symbol, least in zip(made_of, before, strict=True):
        symbol.least = symbol.least if found else least
        symbol.hint = max(symbol.hint, symbol.least)


def _grows(size: int, symbol: Symbol) -> bool:
    """Is a size never smaller where a symbol is larger?"""
    more = substitute(size, symbol, Size({(symbol,): 1}) + 1)
    return bounds(more - size)[0] >= 0


def _give(made_of: Mapping[Symbol, int], of: Symbol, value: int) -> None:
    for symbol, size in made_of.items():
        symbol.least = max(0, bind(size, {of: value}))


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
