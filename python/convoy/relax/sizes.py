"""Lengths of Relax, which are expressions of symbolic variables, as sizes of a graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isinf
from types import MappingProxyType
from typing import TypeAlias

from tvm import relax, tirx
from tvm.tirx import IntImm

from convoy.graph.sizes import (
    Symbol,
    as_shifted_quotient,
    as_symbol,
    bounds,
    hint,
    is_open,
    largest,
    open_size,
    rewrite,
    root,
    smallest,
    substitute,
    symbols,
    whole_factor,
    whole_of,
    write,
)

Dim: TypeAlias = int | relax.Expr
"""An axis: its length, or the expression of a symbolic one."""

LATE = "late"
"""The name of a symbol that a run finds: a length that data say, not the shape of an input."""
FOUND = frozenset({LATE, "nonzero_numbers", "num_nonzero", "unique_numbers"})
"""That, and what TVM's frontend calls such a symbol."""
PARTS = {f"part_of_{times}": times for times in range(2, 257)}
"""Names of symbols that stand for open sizes of which each is a multiple, and of what."""
LIKELY_IMAGE = 320
"""Pixels a side of an image, where nothing else is known: what decisions are made for."""
LIKELY_LENGTH = 128
"""The same of a sequence."""


class Lengths:
    """The sizes of one function: a symbol for each variable.

    ``least`` says of variables what they are at least, where that is not 1, or 0 of one that a run finds.
    """

    def __init__(self, least: Mapping[tirx.Var, int] = MappingProxyType({})) -> None:
        self._least = least
        self.variables: dict[tirx.Var, int] = {}
        self._expressions: dict[int, tuple[Dim, int | None]] = {}
        """Expressions and their sizes, by the address of the expression, which its place here keeps."""

    def size(self, length: Dim) -> int | None:
        """The size that a length is; None for an expression that sizes do not know."""
        if isinstance(length, int):
            return length
        if isinstance(length, IntImm):
            return int(length.value)
        if isinstance(length, tirx.Var):
            if length not in self.variables:
                taken = sum(str(other.name) == str(length.name) for other in self.variables)
                given = str(length.name)
                name = f"{given}_{taken}" if taken else given
                least = self._least.get(length, 0 if given in FOUND else 1)
                self.variables[length] = open_size(name, LIKELY_IMAGE // PARTS.get(given, 1), least)
            return self.variables[length]
        if not isinstance(length, _BINARY):
            return None
        known = self._expressions.get(hash(length))
        if known is None:
            a, b = self.size(length.a), self.size(length.b)
            known = (length, None if a is None or b is None else _compute(length.__class__, a, b))
            self._expressions[hash(length)] = known
        return known[1]

    def expression(self, size: int) -> Dim:
        """The expression of a size of these variables."""
        given = {self.size(variable): variable for variable in self.variables}
        return write(size, lambda symbol: given[symbol], FUNCTIONS)

    def sizes(self, lengths: Sequence[Dim], images: int) -> tuple[Dim, ...]:
        """Lengths as sizes, where they are known, but that of the axis of the images."""
        found = (None if axis == images else self.size(length) for axis, length in enumerate(lengths))
        return tuple(given if size is None else size for given, size in zip(lengths, found, strict=True))


FUNCTIONS = {"quotient": tirx.floordiv, "max": tirx.max, "min": tirx.min}
"""What atoms of sizes are as expressions of TVM's."""
_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min)


@lru_cache(maxsize=1 << 15)
def _compute(op: type, a: int, b: int) -> int | None:
    """What an op of two sizes is: each tensor of a network has expressions of its own of a few sizes."""
    operation = _WHOLE.get(op)
    if operation is not None:
        return operation(a, b)
    if not isinstance(b, int) or b == 0:
        return None
    return a // b if op is tirx.FloorDiv else a % b


_WHOLE: Mapping[type, Callable[[int, int], int]] = {
    tirx.Add: operator.add,
    tirx.Sub: operator.sub,
    tirx.Mul: operator.mul,
    tirx.Max: largest,
    tirx.Min: smallest,
}


def least_variable(length: Dim, least: int) -> tuple[tirx.Var, int] | None:
    """The variable and its least value for which a length is so much, if that grows with it alone."""
    lengths = Lengths()
    size = lengths.size(length)
    found = root(size - least) if size is not None and is_open(size) else None
    if found is None:
        return None
    symbol, value = found
    return next(v for v, own in lengths.variables.items() if as_symbol(own) is symbol), value


class RegionLengths:
    """The sizes of one region in those of its inputs' axes, which a call tells.

    An input's axis that is a variable is a symbol of the graph.  So is one that is a quotient of a variable
    of which nothing else is known: where the other lengths follow from it.  And so is any other that does
    not follow from those: a length is a sum of products of them, if it can be.  What is so often another is
    as often a symbol: a half of it is one of its products then.
    """

    def __init__(
        self, inputs: Iterable[Sequence[Dim]], least: Mapping[tirx.Var, int] = MappingProxyType({})
    ) -> None:
        self.lengths = Lengths(least)
        self.known: dict[Symbol, list[int]] = {}
        """What each variable's symbol is in the graph's: all it may be, where that is not the same."""
        self.made: dict[int, int] = {}
        """Symbols of the graph, or so often one, by the length they are."""
        self.equal: list[tuple[int, int]] = []
        """Lengths of which no variable follows, and the symbols they are."""
        self.wholes: list[tuple[int, int]] = []
        """Lengths of which both parts are known, and what those are together."""
        self.often_none: set[Symbol] = set()
        """Symbols that are 0 at calls whose inputs all have elements."""
        self._rewritten: dict[int, int | None] = {}
        for rank, size in sorted(_open_axes(inputs, self.lengths), key=lambda found: _divisor(found[1])):
            self._bind(size, LIKELY_IMAGE if rank == 4 else LIKELY_LENGTH)

    def _bind(self, size: int, likely: int) -> None:
        if self._rewrite(size) is not None:
            return
        times = whole_factor(size)
        part = size // times
        low = bounds(part)[0]
        least = 1 if isinf(low) else max(1, int(low))
        own = open_size(f"size[{len(self._own)}]", max(least, hint(part)), least)
        symbol = as_symbol(own)
        assert symbol is not None
        variable = as_symbol(part)
        shifted = as_shifted_quotient(part)
        if variable is not None:
            symbol.hint = max(1, likely // times)
            self.known[variable] = [own]
        elif shifted is not None and shifted.symbol not in self.known:
            symbol.hint = max(1, likely // (times * shifted.divisor))
            self.known[shifted.symbol] = shifted.solve(own)
        else:
            # of p and q - p, q is their sum: that is seen where the p in it is written as what it is
            self.equal.append((self._reduce(part, self.equal), own))
            if hint(part) < 1:  # a difference of lengths that are as likely: neither's hint says its own
                symbol.hint = max(least, likely // times)
        for other, made in self.made.items():  # both halves are known, so the whole
            whole, sum_of = whole_of(part, other), as_symbol(part + other)
            if sum_of is not None:
                self.known[sum_of] = [own + made]
            elif whole is not None:
                self.wholes.append((whole, own + made))
        self.made |= {part: own, size: times * own}
        if bounds(size)[0] < 1:
            self.often_none.update(symbols(self.made[size]))

    @property
    def made_of(self) -> dict[Symbol, int]:
        """What the graph's symbols are in those of the variables."""
        found = ((as_symbol(own), length) for length, own in self.made.items())
        return {symbol: length for symbol, length in found if symbol is not None}

    def size(self, length: Dim) -> int | None:
        """The size of the graph that a length is; None where it does not follow from the inputs'."""
        size = self.lengths.size(length)
        if size is None:
            return None
        if size not in self._rewritten:
            self._rewritten[size] = self._rewrite(size)
        return self._rewritten[size]

    def sizes(self, lengths: Sequence[Dim]) -> tuple[Dim, ...]:
        """Lengths with sizes of the graph for those that follow from the inputs'."""
        found = map(self.size, lengths)
        return tuple(given if size is None else size for given, size in zip(lengths, found, strict=True))

    def _rewrite(self, size: int) -> int | None:
        if not is_open(size):
            return size
        if size in self.made:
            return self.made[size]
        # a whole may lie in a part of it, and a part in a whole
        orders = (self.equal + self.wholes, self.wholes + self.equal)
        reduced = (self._reduce(size, order) for order in orders)
        return next((found for found in reduced if self._own.issuperset(symbols(found))), None)

    def _reduce(self, size: int, equal: Sequence[tuple[int, int]]) -> int:
        """In terms of the graph's symbols, as far as they say it."""
        found, own = self._substitute(size), self._own
        for length, symbol in equal:
            found = rewrite(found, length, symbol, own)
        return found

    @property
    def _own(self) -> set[Symbol]:
        return {symbol for made in self.made.values() for symbol in symbols(made)}

    def _substitute(self, size: int) -> int:
        """In terms of the graph's symbols, as far as one value follows from them."""
        for symbol in symbols(size):
            values = self.known.get(symbol, [])
            found = [substitute(size, symbol, value) for value in values]
            if found and all(f == found[0] for f in found):
                size = found[0]
        return size


def _open_axes(inputs: Iterable[Sequence[Dim]], lengths: Lengths) -> Iterator[tuple[int, int]]:
    """The rank of the input and the size, of each axis that is no number."""
    for shape in inputs:
        for length in shape:
            size = lengths.size(length)
            if size is not None and is_open(size):
                yield len(shape), size


def _divisor(size: int) -> int:
    """What a variable is divided by, in what an axis is so often; of other sizes a large number."""
    part = size // whole_factor(size)
    shifted = as_shifted_quotient(part)
    return 1 if as_symbol(part) is not None else shifted.divisor if shifted is not None else 1 << 30
