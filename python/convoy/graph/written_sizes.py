"""Sizes as exporters write them, in terms of others: ``32*s71``, ``past + 1``, ``(h//2)``.

Such a text comes from anywhere.  What is no short expression of whole numbers, names, ``+``, ``-``, ``*``,
``//`` and parentheses is a name and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from convoy.errors import OpenSizeError

MOST_LETTERS = 400
"""A longer text is no expression."""
MOST_DEEP = 20
"""Nor is one with more parentheses and signs within each other: each is a call of Python's."""
LARGEST = 2**31
"""So much the numbers of a text are together, at most: coefficients fit 64 bits then."""
_TOKEN = re.compile(r" *([0-9]+|[^\W\d]\w*|//|[-+*()]) *")
_NO_NAMES = "0123456789+-*/()"


def names_of(text: str) -> tuple[str, ...]:
    """The names in an expression; none in a text that is none."""
    tokens = _tokens(text) or []
    return tuple(dict.fromkeys(token for token in tokens if token[0] not in _NO_NAMES))


def compute_size(text: str, values: Mapping[str, int]) -> int | None:
    """What an expression comes to where its names have these values, which may be sizes of a graph.

    None if it is no expression, or divides by what is not written as a number, or a name has no value.
    """
    tokens = _tokens(text)
    if tokens is None:
        return None
    try:
        reader = _Reader(tokens, values)
        found = reader.sum()
        return found if reader.done else None
    except (_None, OpenSizeError):
        return None


def complete_shapes(
    written: Sequence[Sequence[int | str | None]],
    given: Sequence[Sequence[int | None]],
    batch: int | None = 1,
) -> list[tuple[int | str | None, ...]]:
    """Shapes with the numbers that are given, and those that follow from them, in place of texts.

    Parameters
    ----------
    written : Sequence[Sequence[int | str | None]]
        The shapes of inputs: numbers, texts of open sizes, and None for those without one.
    given : Sequence[Sequence[int | None]]
        For each of them its numbers, with None for what is left open, or nothing.
    batch : int | None
        What an open first axis is where nothing says it; None: it stays open.
    """
    known: dict[str, int] = {}
    pairs = [
        (text, number)
        for shape, numbers in zip(written, given, strict=True)
        for text, number in zip(_named(shape), numbers, strict=False)
        if isinstance(text, str) and number is not None
    ]
    while read := dict(_read_names(pairs, known)):
        known |= read
    first = [shape[0] for shape in map(_named, written) if shape and isinstance(shape[0], str)]
    for text in sorted(first, key=lambda text: names_of(text) != (text,)):  # 2*n follows from n
        found = compute_size(text, known)
        if batch is not None:
            known.setdefault(text, batch if found is None else found)
    shapes = [_merge(_named(shape), numbers) for shape, numbers in zip(written, given, strict=True)]
    return [tuple(_follow(size, known) for size in shape) for shape in shapes]


def _named(shape: Sequence[int | str | None]) -> tuple[int | str | None, ...]:
    """A shape whose batch has a text, which all batches without one share."""
    return tuple("" if size is None and not axis else size for axis, size in enumerate(shape))


def _merge(shape: Sequence[int | str | None], numbers: Sequence[int | None]) -> Sequence[int | str | None]:
    """The numbers, with what is written where one is left open; the rank is theirs."""
    left = (*shape, *[None] * len(numbers))
    return [own if n is None else n for n, own in zip(numbers, left, strict=False)] or shape


def _follow(size: int | str | None, known: Mapping[str, int]) -> int | str | None:
    if not isinstance(size, str):
        return size
    found = known[size] if size in known else compute_size(size, known)
    return (size or None) if found is None or found < 0 else found


def _read_names(pairs: Sequence[tuple[str, int]], known: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """What is not known yet: a text itself, and the one unknown name in a text that grows with it."""
    for text, number in pairs:
        if text not in known:
            yield text, number
        unknown = [name for name in names_of(text) if name not in known and name != text]
        if len(unknown) == 1:
            (name,) = unknown
            begin, then = (compute_size(text, {**known, name: value}) for value in (0, 1))
            if begin is None or then is None or then == begin:
                continue
            value = (number - begin) // (then - begin)
            if compute_size(text, {**known, name: value}) == number:
                yield name, value


class _None(Exception):
    """What is read is no expression of sizes that are known."""


class _Reader:
    """What an expression comes to, from left to right."""

    def __init__(self, tokens: list[str], values: Mapping[str, int]) -> None:
        self._left = tokens[::-1]
        self._values = values
        self._deep = 0

    @property
    def done(self) -> bool:
        return not self._left

    def sum(self) -> int:
        found = self._product()
        for sign in self._signs("+", "-"):
            found = found + self._product() if sign == "+" else found - self._product()
        return found

    def _product(self) -> int:
        found = self._factor()
        for sign in self._signs("*", "//"):
            found = found * self._factor() if sign == "*" else found // self._divisor()
        return found

    def _divisor(self) -> int:
        token = self._left.pop() if self._left else ""
        if not token.isdecimal() or not int(token):
            raise _None
        return int(token)

    def _factor(self) -> int:
        token = self._left.pop() if self._left else ""
        if token in ("-", "("):
            self._deep += 1
            if self._deep > MOST_DEEP:
                raise _None
            found = -self._factor() if token == "-" else self.sum()
            if token == "(" and (not self._left or self._left.pop() != ")"):
                raise _None
            self._deep -= 1
            return found
        if token.isdecimal():
            return int(token)
        if token not in self._values:
            raise _None
        return self._values[token]

    def _signs(self, *signs: str) -> Iterator[str]:
        while self._left and self._left[-1] in signs:
            yield self._left.pop()


def _tokens(text: str) -> list[str] | None:
    """The parts of a text; None if it cannot be an expression."""
    if len(text) > MOST_LETTERS:
        return None
    found, at, product = [], 0, 1
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        token = match[1]
        product *= max(1, int(token)) if token.isdecimal() else 1
        found.append(token)
        at = match.end()
    return found if product < LARGEST else None
