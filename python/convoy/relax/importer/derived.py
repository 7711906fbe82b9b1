"""Open sizes of inputs that exporters write in terms of others: ``32*s71`` beside ``s71``.

A size that stands alone somewhere is a symbol.  What is written in terms of such is known to be that, so
that what comes of both is seen to be equal.  A name that stands alone nowhere tells of two sizes what one
is in terms of the other: of ``2*h`` and ``4*h + 1`` the second is twice the first, and one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isfinite
from typing import NamedTuple

from tvm import relax, tirx

from convoy.graph.sizes import Symbol, as_symbol, bounds, hint, open_size, substitute, symbols, write
from convoy.graph.written_sizes import MOST_LETTERS, compute_size, names_of
from convoy.onnx_file import names_size
from convoy.relax.sizes import FUNCTIONS, LIKELY_LENGTH

MOST_WRITTEN = 100
"""Letters of an expression, at most: a product of many sums would be thousands of products."""


def derive(texts: Iterable[str], given: Mapping[str, int]) -> dict[str, int]:
    """Sizes that follow from others, by their texts: numbers, or sizes of symbols named as those others.

    Parameters
    ----------
    texts : Iterable[str]
        Those of the open sizes.
    given : Mapping[str, int]
        Numbers that other sizes are to be, by their texts.
    """
    open_texts = dict.fromkeys(text for text in texts if len(text) <= MOST_WRITTEN and names_size(text))
    names = dict.fromkeys(name for text in open_texts for name in names_of(text) if names_size(name))
    values = {
        name: given[name] if name in given and name not in open_texts else _symbol(name) for name in names
    }
    found: dict[str, int] = {}
    waiting: dict[Symbol, list[_Linear]] = {}
    for text in open_texts:
        size = None if text in names else compute_size(text, values)
        if size is None:
            continue
        unknown = [symbol for symbol in symbols(size) if symbol.name not in open_texts]
        if not unknown:
            found[text] = size
        elif len(unknown) == 1 and (linear := _as_linear(text, size, unknown[0], values[unknown[0].name])):
            waiting.setdefault(unknown[0], []).append(linear)
    for members in waiting.values():
        found |= _in_terms_of_one(members)
    return {text: size for text, size in found.items() if _is_length(size)}


def _symbol(name: str) -> int:
    return open_size(name, LIKELY_LENGTH, 0)


def _is_length(size: int) -> bool:
    """Is it one at likely sizes, whatever the others are, and can a library say it?"""
    return hint(size) > 0 and isfinite(bounds(size)[0]) and len(repr(size)) <= MOST_LETTERS


class _Linear(NamedTuple):
    """The size ``times * symbol + rest``."""

    text: str
    times: int
    rest: int


def _as_linear(text: str, size: int, symbol: Symbol, own: int) -> _Linear | None:
    rest = substitute(size, symbol, 0)
    times = substitute(size, symbol, 1) - rest
    fits = isinstance(times, int) and times > 0 and size == times * own + rest
    return _Linear(text, times, rest) if fits else None


def _in_terms_of_one(members: Sequence[_Linear]) -> dict[str, int]:
    """Sizes of one symbol in terms of that which has it least often, where no division is needed."""
    first = min(members, key=lambda member: member.times)
    own = _symbol(first.text)
    return {
        member.text: member.times // first.times * (own - first.rest) + member.rest
        for member in members
        if member is not first and member.times % first.times == 0
    }


def rename(size: int, names: Mapping[str, str]) -> int:
    """The same of symbols of other names."""
    for symbol in symbols(size):
        size = substitute(size, symbol, _symbol(names[symbol.name]))
    return size


def settle(size: int, name: str, number: int) -> int:
    """What a size is where one of its symbols is a number."""
    symbol = next((symbol for symbol in symbols(size) if symbol.name == name), None)
    return size if symbol is None else substitute(size, symbol, number)


def write_derived(inputs: Iterable[relax.Expr], derived: Mapping[str, int]) -> dict[relax.Var, relax.Var]:
    """The inputs that have such sizes, with expressions in their places, by what they were."""
    shapes = {
        x: list(x.ty.shape.values)
        for x in inputs
        if isinstance(x, relax.Var) and isinstance(getattr(x.ty, "shape", None), relax.ShapeExpr)
    }
    variables = {str(d.name): d for dims in shapes.values() for d in dims if isinstance(d, tirx.Var)}
    sizes = {
        variables[name]: write(size, lambda symbol: variables[_name(symbol)], FUNCTIONS)
        for name, size in derived.items()
    }
    return {
        x: relax.Var(x.name, relax.TensorType([sizes.get(d, d) for d in dims], x.ty.dtype))
        for x, dims in shapes.items()
        if any(d in sizes for d in dims)
    }


def _name(size: int) -> str:
    symbol = as_symbol(size)
    assert symbol is not None
    return symbol.name
