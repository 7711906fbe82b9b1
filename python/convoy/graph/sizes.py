"""Sizes that are known when a region is called: numbers of one image's height, width or length.

A ``Size`` is a polynomial, with integer coefficients, of symbols and of what divisions, maxima and minima
make of such.  It stands where else an int does, and arithmetic on it gives Sizes.  Equal polynomials have
one form, and halves of a size are joined, so ``==`` says: equal at every call.  Where it says no, two sums
of several quotients may be equal yet.

It cannot pass for a number.  An order that does not hold at every call is an ``OpenSizeError`` and no
guess; so is its use where C or Python need a number.  Who may decide by what is likely asks for its
``hint``.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import permutations
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar, cast

from convoy.errors import OpenSizeError

T = TypeVar("T")

if TYPE_CHECKING:

    class _Number(int):
        """What types say a Size is."""

else:

    class _Number:
        """What it is: nothing that takes an int takes it by mistake."""


class Symbol:
    """A size that is read from the arguments of a call."""

    __slots__ = ("_least", "hint", "most", "name")

    def __init__(self, name: str, hint: int, least: int = 1, most: float = math.inf) -> None:
        self.name = name
        """What it is called in C, as a member of ``f``."""
        self.hint = hint
        """A likely value."""
        self._least = least
        self.most = most
        """The largest of a case that bounds look at; a call may have any."""

    @property
    def least(self) -> int:
        """No call has a smaller one."""
        return self._least

    @least.setter
    def least(self, least: int) -> None:
        self._least = least
        _bounds.cache_clear()
        _whole.cache_clear()

    def __repr__(self) -> str:
        return f"{self.name} >= {self.least} ~ {self.hint}"


class Quotient:
    """The floor of one size by another."""

    __slots__ = ("above", "below", "name")

    def __init__(self, above: Size, below: int) -> None:
        self.above = above
        self.below = below
        self.name = _spell_atom(self, "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Quotient) and (self.above, self.below) == (other.above, other.below)

    def __hash__(self) -> int:
        return hash((self.above, self.below))


class Extreme:
    """The largest or the smallest of sizes, each of which it is at some call as far as is known."""

    __slots__ = ("kind", "members", "name")

    def __init__(self, kind: str, members: Iterable[int]) -> None:
        self.kind = kind
        self.members = tuple(sorted(set(members), key=lambda member: _by_length(_spell(member, ""))))
        """In an order that does not differ from process to process."""
        self.name = _spell_atom(self, "")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Extreme) and (self.kind, self.members) == (other.kind, other.members)

    def __hash__(self) -> int:
        return hash((self.kind, self.members))


class Rest(NamedTuple):
    """What a division leaves; in bounds only."""

    quotient: Quotient


Atom = Symbol | Quotient | Extreme
Monomial = tuple[Atom, ...]
Terms = Mapping[Monomial, int]

_FUNCTIONS: Mapping[str, Callable[..., int]] = {"max": max, "min": min}


class Size(_Number):
    """One that is not known before the call."""

    __slots__ = ("_hash", "_terms", "_text")

    def __init__(self, terms: Terms) -> None:
        self._terms = dict(sorted(terms.items(), key=lambda term: _name(term[0])))
        self._hash = hash(tuple(self._terms.items()))
        self._text = ""

    # Arithmetic ---------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        if isinstance(other, float):
            return hint(self) + other
        if not isinstance(other, int | Size):
            return NotImplemented
        sums = dict(self._terms)
        for monomial, count in _terms_of(other).items():
            sums[monomial] = sums.get(monomial, 0) + count
        return _make(sums)

    __radd__ = __add__

    def __neg__(self) -> Any:
        return self * -1

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, float):
            return hint(self) * other
        if not isinstance(other, int | Size):
            return NotImplemented
        products: dict[Monomial, int] = {}
        for a, m in self._terms.items():
            for b, n in _terms_of(other).items():
                both = _product(a, b)
                products[both] = products.get(both, 0) + m * n
        return _make(products)

    __rmul__ = __mul__

    def __floordiv__(self, other: Any) -> Any:
        if isinstance(other, float):
            return hint(self) // other
        return _divide(self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return other // float(hint(self)) if isinstance(other, float) else _divide(other, self)

    def __mod__(self, other: Any) -> Any:
        return self - self // other * other

    def __rmod__(self, other: Any) -> Any:
        return other - other // self * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __or__(self, other: int) -> Any:
        """With 1: the next odd number."""
        if other != 1:
            self._refuse(f"| {other}")
        return 2 * (self // 2) + 1

    def __truediv__(self, other: Any) -> float:
        """Estimates are made of the hint."""
        return float(hint(self) / hint(other))

    def __rtruediv__(self, other: Any) -> float:
        return float(other / hint(self))

    def __float__(self) -> float:
        return float(hint(self))

    # Comparisons --------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Size) and self._terms == other._terms

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: float) -> bool:
        return not self >= other

    def __le__(self, other: float) -> bool:
        return not self > other

    def __gt__(self, other: float) -> bool:
        return self._decide(">", self - other, strictly=True)

    def __ge__(self, other: float) -> bool:
        return self._decide(">=", self - other, strictly=False)

    def __bool__(self) -> bool:
        return self > 0 or self._refuse("!= 0")

    def _decide(self, sign: str, difference: float, *, strictly: bool) -> bool:
        low, high = (difference, difference) if isinstance(difference, int | float) else bounds(difference)
        if low > 0 or (low == 0 and not strictly):
            return True
        if high >= 0 and not (high == 0 and strictly):
            self._refuse(f"{difference!r} {sign} 0")
        return False

    # Its text -----------------------------------------------------------------------------------

    def __str__(self) -> str:
        """An expression of C, of members of the frame ``f``."""
        self._text = self._text or f"({_spell(self, 'f->')})"
        return self._text

    def __format__(self, spec: str) -> str:
        return str(self) if spec in ("", "d") else format(hint(self), spec)

    def __repr__(self) -> str:
        text = _spell(self, "")
        return text[1:-1] if _only_atom(self) and text.startswith("(") else text

    def __index__(self) -> int:
        self._refuse("as a number")

    __int__ = __index__

    def _refuse(self, use: str) -> NoReturn:
        raise OpenSizeError(
            "plan",
            f"size {self!r}",
            f"expected a number, got one known at the call, for: {use}",
            "leave the op to TVM, or fix the size",
        )


def open_size(name: str, likely: int, least: int = 1) -> Size:
    """A new one, unlike all others."""
    return Size({(Symbol(name, likely, least),): 1})


def _terms_of(value: int) -> Terms:
    return value._terms if isinstance(value, Size) else {(): int(value)}


def _make(terms: Terms) -> int:
    kept = {monomial: count for monomial, count in terms.items() if count}
    if not kept.keys() - {()}:
        return kept.get((), 0)
    for monomial in kept if len(kept) - (() in kept) > 1 else ():
        for atom in dict.fromkeys(monomial):
            if isinstance(atom, Quotient) and (joined := _join(kept, monomial, atom)):
                return _make(joined)
    return Size(kept)


def _join(terms: Terms, monomial: Monomial, part: Quotient) -> Terms | None:
    """The same sum where ``n - n // 2`` is ``(n + 1) // 2``, and where the two halves together are ``n``.

    None if there are no two of part, other part and whole to make one of.
    """
    found = _parts(monomial, part)
    if found is None:
        return None
    counts = [terms.get(m, 0) // n for m, n in found.whole.items()]
    certain = min(counts, key=abs) if all(c * counts[0] > 0 for c in counts) else 0
    also = _times_alone(terms, found.other)
    # so many of each part are a whole, or the other way
    often = sorted((-certain, terms[monomial], also))[1]
    return _exchanged(terms, monomial, found, often) if often else None


def _split(terms: Terms, below: int) -> Terms:
    """The same sum with a whole in place of as many of both parts, which ``below`` does not divide."""
    for monomial, count in terms.items():
        for atom in monomial if count % below else ():
            found = _parts(monomial, atom) if isinstance(atom, Quotient) else None
            if found is not None and (_times_alone(terms, found.other) - count) % below == 0:
                return _split(_exchanged(terms, monomial, found, count), below)
    return terms


class _Parts(NamedTuple):
    """The whole that a part is with another part, and that; and ``more``, by which it is more than both."""

    whole: Terms
    other: Terms
    more: Terms


def _parts(monomial: Monomial, part: Quotient) -> _Parts | None:
    """Those of a part in a product, times the rest of it."""
    found = _whole(part)
    if found is None:
        return None
    rest = list(monomial)
    rest.remove(part)
    whole, other = ({_product(m, rest): n for m, n in _terms_of(each).items() if m} for each in found)
    more = _terms_of(found[0]).get((), 0) - _terms_of(found[1]).get((), 0)
    return _Parts(whole, other, {_product((), rest): more})


def _times_alone(terms: Terms, value: Terms) -> int:
    """How often a value is in a sum, if it is one product or the negative of one."""
    ((monomial, sign),) = value.items() if len(value) == 1 else (((), 0),)
    return sign * terms.get(monomial, 0) if abs(sign) == 1 else 0


def _exchanged(terms: Terms, part: Monomial, found: _Parts, often: int) -> Terms:
    """The same sum with so many more of the whole, and so many less of each part."""
    sums = Counter(terms)
    sums[part] -= often
    for each, times in ((found.whole, often), (found.other, -often), (found.more, often)):
        for m, n in each.items():
            sums[m] += times * n
    return {m: n for m, n in sums.items() if n}


@lru_cache(maxsize=1 << 14)
def _whole(part: Quotient) -> tuple[int, int] | None:
    """What two quotients are, and the other: n, of n // 2 and (n + 1) // 2, 6n // 7 and (n + 6) // 7."""
    inner = {monomial: count for monomial, count in part.above._terms.items() if monomial}
    if all(2 * count > part.below for count in inner.values()):
        whole = _make(dict.fromkeys(inner, 1))
        return whole, _divide(part.below * whole - part.above + part.below - 1, part.below)
    if part.below % 2:
        return None
    whole = _divide(part.above, part.below // 2)
    return whole, _divide(whole + 1, 2)


def _product(a: Iterable[Atom], b: Iterable[Atom]) -> Monomial:
    return tuple(sorted((*a, *b), key=lambda atom: atom.name))


def _divide(above: int, below: int) -> int:
    """⌊above / below⌋: what divides without a rest is taken out of the quotient."""
    if isinstance(below, Size):
        return _divide_by_size(above, below)
    if below < 0:
        return _divide(-above, -below)
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, count in _split(_terms_of(above), below).items():
        if monomial and count % below:
            rest[monomial] = count
        else:
            quotient, left = divmod(count, below)
            whole[monomial] = quotient
            if left:
                rest[monomial] = left
    outside, inside = _make(whole), _make(rest)
    return outside + (_quotient(inside, below) if isinstance(inside, Size) else inside // below)


def _quotient(above: Size, below: int) -> int:
    common = math.gcd(below, *(count for monomial, count in above._terms.items() if monomial))
    if common > 1:
        return _divide(_make({m: count // common for m, count in above._terms.items()}), below // common)
    lead = next(count for monomial, count in above._terms.items() if monomial)
    if lead < 0:  # ⌊-a / b⌋ = -⌈a / b⌉
        return -_divide(-above + below - 1, below)
    inner = [monomial for monomial in above._terms if monomial]
    if len(inner) == 1 and len(inner[0]) == 1 and above._terms[inner[0]] == 1:
        atom = inner[0][0]
        if isinstance(atom, Quotient):  # ⌊(⌊a / b⌋ + c) / d⌋ = ⌊(a + b·c) / (b·d)⌋
            added = above._terms.get((), 0)
            return _divide(atom.above + atom.below * added, atom.below * below)
    low, high = bounds(above)
    if low >= 0 and high < below:
        return 0
    return Size({(Quotient(above, below),): 1})


def _divide_by_size(above: int, below: Size) -> int:
    """Where the rest is below the divisor at every call, and nowhere else.

    Where nothing is left the divisor may be 0: n·d / d is n, whatever the length of an empty axis is.
    """
    lead, count = _leading(below)
    quotient, rest = 0, above
    while (monomial := _multiple(rest, lead, count)) != 0:
        quotient += monomial
        rest -= monomial * below
    fits = bounds(below)[0] >= 0 if rest == 0 else bounds(rest)[0] >= 0 and bounds(below - rest)[0] > 0
    if not fits:
        below._refuse(f"{above!r} divided by it")
    return quotient


def _leading(value: Size, known: Container[Symbol] = ()) -> tuple[Monomial, int]:
    """The term of most factors, unknown ones first, by an order that products keep: so a division ends."""

    def rank(term: tuple[Monomial, int]) -> tuple[int, int, list[str]]:
        unknown = sum(any(symbol not in known for symbol in symbols(atom)) for atom in term[0])
        return unknown, len(term[0]), [atom.name for atom in term[0]]

    return max(value._terms.items(), key=rank)


def _multiple(value: int, monomial: Monomial, count: int) -> int:
    """How often a term is in one of ``value``; 0 where it is in none."""
    for found, n in _terms_of(value).items():
        left = list(found)
        for atom in monomial:
            if atom not in left or n % count:
                break
            left.remove(atom)
        else:
            return _make({tuple(left): n // count})
    return 0


def largest(*values: int) -> int:
    """The largest of sizes and numbers."""
    return _extreme("max", values)


def smallest(*values: int) -> int:
    """The smallest of sizes and numbers."""
    return _extreme("min", values)


def _extreme(kind: str, values: Iterable[int]) -> int:
    first, *rest = dict.fromkeys(values)
    for value in rest:
        first = _extreme_of_two(kind, first, value)
    return first


def _extreme_of_two(kind: str, a: int, b: int) -> int:
    """An extreme of extremes is one: nested ones would take twice the time with each."""
    if not is_open(a) and not is_open(b):
        return _FUNCTIONS[kind](a, b)
    kept: list[int] = []
    for value in dict.fromkeys((*_members(kind, a), *_members(kind, b))):
        if not any(_is_beyond(kind, other, value) for other in kept):
            kept = [other for other in kept if not _is_beyond(kind, value, other)] + [value]
    if len(kept) > 2:
        return Size({(Extreme(kind, kept),): 1})
    return _settled(kind, *kept) if len(kept) == 2 else kept[0]


def _members(kind: str, value: int) -> Iterable[int]:
    """Sizes whose extreme is ``value``."""
    atom = _only_atom(value)
    return atom.members if isinstance(atom, Extreme) and atom.kind == kind else (value,)


def _is_beyond(kind: str, a: int, b: int) -> bool:
    """Is ``a`` at every call as large, or as small, as ``b``?"""
    low, high = bounds(a - b)
    return low >= 0 if kind == "max" else high <= 0


def _by_length(text: str) -> tuple[int, str]:
    return len(text), text


def _settled(kind: str, a: int, b: int) -> int:
    """The extreme of two sizes in one form: s - max(0, s - 64) and 64 - max(0, 64 - s) are min(s, 64)."""
    for above, below in ((a, b), (b, a)):
        if root(above - below) is not None:
            number = -_terms_of(above - below).get((), 0)
            grows: int = above - below + number
            least: int = Size({(Extreme("min", (grows, number)),): 1})
            return below - number + least if kind == "min" else below + grows - least
    return Size({(Extreme(kind, (a, b)),): 1})


# What is known of a size before the call -----------------------------------------------------------


def is_open(value: object) -> bool:
    """Is this a size known at the call, or does it hold one (a shape, a node)?"""
    if isinstance(value, tuple):
        return any(map(is_open, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(is_open(getattr(value, f.name)) for f in fields(value))
    return isinstance(value, Size)


def hint(value: T) -> T:
    """A number, or what holds sizes, with the likely values in their places."""
    return bind(value, {})


def bind(value: T, sizes: Mapping[Symbol, int]) -> T:
    """``value``, with what its sizes are where their symbols have these values, or the likely ones."""
    found: Any = value
    if isinstance(value, Size):
        found = sum(
            count * math.prod(_value(atom, sizes) for atom in monomial)
            for monomial, count in value._terms.items()
        )
    elif isinstance(value, tuple) and is_open(value):
        found = tuple(bind(v, sizes) for v in value)
    elif is_dataclass(value) and not isinstance(value, type) and is_open(value):
        found = replace(value, **{f.name: bind(getattr(value, f.name), sizes) for f in fields(value)})
    return cast("T", found)


def _value(atom: Atom, sizes: Mapping[Symbol, int]) -> int:
    if isinstance(atom, Symbol):
        return sizes.get(atom, atom.hint)
    if isinstance(atom, Quotient):
        return int(bind(atom.above, sizes)) // atom.below
    return _FUNCTIONS[atom.kind](bind(v, sizes) for v in atom.members)


TURNS = 3
"""Extremes of which bounds look at both cases: with each there are twice as many."""


def bounds(value: int, turns: int = TURNS) -> tuple[float, float]:
    """Between which numbers it is, as far as that is known: infinite where it is not.

    ``turns`` is of how many of its extremes both cases are looked at.
    """
    return _bounds(value, turns) if isinstance(value, Size) else (value, value)


@lru_cache(maxsize=1 << 14)
def _bounds(value: Size, turns: int) -> tuple[float, float]:
    terms = _terms_of(value)
    low, high = _interval(terms)
    if any(_is_quotient(monomial) for monomial in terms):
        least, most = _interval(_without_quotients(terms))
        least, most = (v if math.isinf(v) else r(v) for v, r in ((least, math.ceil), (most, math.floor)))
        low, high = max(low, least), min(high, most)
    turn = next(_turns(value), None) if turns else None
    if turn is not None:
        cases = [bounds(case, turns - 1) for case in _cases(value, *turn)]
        low, high = max(low, min(cases)[0]), min(high, max(most for _, most in cases))
    for extreme, count in _extremes_alone(terms) if turns else ():
        others = value - count * Size({(extreme,): 1})
        ends = [bounds(others + count * member, 0) for member in extreme.members]
        if (extreme.kind == "max") == (count > 0):
            low = max(low, *(least for least, _ in ends))
        else:
            high = min(high, *(most for _, most in ends))
    return low, high


def _extremes_alone(terms: Terms) -> Iterator[tuple[Extreme, int]]:
    """The extremes that are terms of a sum, and how often: no member makes it larger than the maximum."""
    for monomial, count in terms.items():
        if len(monomial) == 1 and isinstance(monomial[0], Extreme):
            yield monomial[0], count


def _turns(value: int) -> Iterator[tuple[Symbol, int]]:
    """Where another of two sizes becomes the larger: a symbol, and the least value from which it is.

    An interval of each atom does not see that s - max(0, s - 64) is 1 at least, and s - min(s, 64) 0:
    below 64 the one is s and the other 0, from there on 64 and s - 64.
    """
    for extreme in _extremes(value):
        for a, b in permutations(extreme.members, 2):
            turn = root(a - b)
            if turn is not None and turn[0].least < turn[1] <= turn[0].most:
                yield turn


def has_extremes(value: int) -> bool:
    """Is there a maximum or minimum in a size?"""
    return next(_extremes(value), None) is not None


def _extremes(value: int) -> Iterator[Extreme]:
    for atom in dict.fromkeys(atom for monomial in _terms_of(value) for atom in monomial):
        if isinstance(atom, Quotient):
            yield from _extremes(atom.above)
        elif isinstance(atom, Extreme):
            for each in atom.members:
                yield from _extremes(each)
            yield atom


def root(value: int) -> tuple[Symbol, int] | None:
    """The symbol and its least value for which a size is 0 or more, if it grows with that symbol alone."""
    shifted = as_shifted_quotient(value)
    if shifted is not None:
        return shifted.symbol, shifted.solve(0)[0]
    terms = dict(_terms_of(value))
    added = terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((atoms, times),) = terms.items()
    if len(atoms) != 1 or not isinstance(atoms[0], Symbol) or times < 0:
        return None
    return atoms[0], -(added // times)


def _cases(value: int, symbol: Symbol, turn: int) -> Iterator[int]:
    """A size where a symbol is below a number, and where it is not: each extreme is one of its two."""
    for least, most in ((symbol.least, turn - 1), (turn, symbol.most)):
        case = Symbol(symbol.name, symbol.hint, least, most)
        yield substitute(value, symbol, Size({(case,): 1}))


def _is_quotient(monomial: tuple[Atom | Rest, ...]) -> bool:
    return len(monomial) == 1 and isinstance(monomial[0], Quotient)


def _without_quotients(terms: Terms) -> dict[tuple[Atom | Rest, ...], Fraction]:
    """The same with (a - rest) / b for ⌊a / b⌋, so that what cancels does: n - 2·⌊n / 2⌋ is a rest."""
    linear: dict[tuple[Atom | Rest, ...], Fraction] = {}
    for monomial, count in terms.items():
        inner: dict[tuple[Atom | Rest, ...], Fraction] = {monomial: Fraction(1)}
        if _is_quotient(monomial):
            quotient = cast("Quotient", monomial[0])
            above = _without_quotients(quotient.above._terms)
            above[(Rest(quotient),)] = Fraction(-1)
            inner = {m: c / quotient.below for m, c in above.items()}
        for m, c in inner.items():
            linear[m] = linear.get(m, Fraction(0)) + count * c
    return {m: c for m, c in linear.items() if c}


def _interval(terms: Mapping[Any, Any]) -> tuple[float, float]:
    """Between which numbers a sum of monomials is; exactly, for it may be rounded.

    Each atom is its end and a step of 0 or more away from it, so that what cancels does: where h and w are
    at least 2, 4hw - 4h - 4w + 4 has no term below 0 but is 4 + 4r + 4s + 4rs.
    """
    steps: Counter[tuple[Atom | Rest, ...]] = Counter()
    longest: dict[Atom | Rest, float] = {}
    for monomial, count in terms.items():
        parts: Counter[tuple[Atom | Rest, ...]] = Counter({(): count})
        for atom in monomial:
            low, high = _atom_bounds(atom)
            longest[atom] = high - low
            end, sign = (high, -1) if math.isinf(low) else (low, 1)
            if math.isinf(end):
                return -math.inf, math.inf
            away = [((*part, atom), c * sign) for part, c in parts.items()]
            parts = Counter({part: c * end for part, c in parts.items()})
            for part, c in away:  # of a power some are alike
                parts[part] += c
        for part, c in parts.items():
            steps[part] += c
    low = high = steps.pop((), 0)
    for part, count in steps.items():
        if count and all(longest[atom] for atom in part):
            most = count * math.prod(longest[atom] for atom in part)
            low, high = low + min(most, 0), high + max(most, 0)
    return low, high


def always_before(end: int, begin: int) -> bool:
    """Is ``end`` at most ``begin``, at every call?"""
    return bounds(begin - end)[0] >= 0


def _atom_bounds(atom: Atom | Rest) -> tuple[float, float]:
    if isinstance(atom, Symbol):
        return atom.least, atom.most
    if isinstance(atom, Rest):
        return 0, atom.quotient.below - 1
    if isinstance(atom, Quotient):
        low, high = bounds(atom.above)
        return tuple(v if math.isinf(v) else v // atom.below for v in (low, high))  # type: ignore[return-value]
    ends = [bounds(v) for v in atom.members]
    choose: Any = _FUNCTIONS[atom.kind]
    return choose(low for low, _ in ends), choose(high for _, high in ends)


def symbols(value: object) -> list[Symbol]:
    """The symbols in a size, or in what holds sizes, each once, in order."""
    return list(dict.fromkeys(_symbols(value)))


def _symbols(value: object) -> Iterable[Symbol]:
    if isinstance(value, Symbol):
        yield value
    elif isinstance(value, Size):
        for monomial in value._terms:
            yield from _symbols(monomial)
    elif isinstance(value, Quotient):
        yield from _symbols(value.above)
    elif isinstance(value, Extreme):
        for each in value.members:
            yield from _symbols(each)
    elif isinstance(value, tuple):
        for item in value:
            yield from _symbols(item)
    elif is_dataclass(value) and not isinstance(value, type):
        for f in fields(value):
            yield from _symbols(getattr(value, f.name))


def as_symbol(value: object) -> Symbol | None:
    """The symbol that a size is, if it is nothing but one."""
    atom = _only_atom(value)
    return atom if isinstance(atom, Symbol) else None


def whole_of(a: int, b: int) -> int | None:
    """What two sizes are together, if that is one without the quotients in them, as of two halves."""
    both = a + b
    parts = [(m, atom) for m in _terms_of(a) for atom in m if isinstance(atom, Quotient)]
    made = [both]
    for monomial, part in parts:
        found = _parts(monomial, part)
        if found is not None:
            made.append(_make(_exchanged(_terms_of(both), monomial, found, _terms_of(a)[monomial])))
    return next((size for size in made if not all(_has_atom(size, part) for _, part in parts)), None)


def _has_atom(size: int, atom: Atom) -> bool:
    return any(atom in monomial for monomial in _terms_of(size))


def whole_factor(value: int) -> int:
    """The largest number that divides a size at every call as its terms show."""
    return math.gcd(*_terms_of(value).values())


def as_multiple(value: object) -> tuple[Symbol, int] | None:
    """The symbol and the number whose product a size is, if it is nothing else."""
    if not isinstance(value, Size) or len(value._terms) != 1:
        return None
    ((atoms, times),) = value._terms.items()
    symbol = atoms[0] if len(atoms) == 1 else None
    return (symbol, times) if isinstance(symbol, Symbol) and times > 0 else None


class ShiftedQuotient(NamedTuple):
    """The size ⌊(symbol + inside) / divisor⌋ + outside."""

    symbol: Symbol
    inside: int
    divisor: int
    outside: int

    def solve(self, value: int) -> list[int]:
        """All that the symbol may be where the size is ``value``."""
        least = self.divisor * (value - self.outside) - self.inside
        return [least + rest for rest in range(self.divisor)]


def as_shifted_quotient(value: object) -> ShiftedQuotient | None:
    """What a size is that one division makes of a symbol; None for another."""
    if not isinstance(value, Size):
        return None
    outside = value._terms.get((), 0)
    quotient = _only_atom(value - outside)
    if not isinstance(quotient, Quotient):
        return None
    inside = quotient.above._terms.get((), 0)
    symbol = _only_atom(quotient.above - inside)
    return ShiftedQuotient(symbol, inside, quotient.below, outside) if isinstance(symbol, Symbol) else None


def _only_atom(value: object) -> Atom | None:
    if isinstance(value, Size) and list(value._terms.values()) == [1]:
        ((*atoms,),) = value._terms
        return atoms[0] if len(atoms) == 1 else None
    return None


def substitute(value: int, symbol: Symbol, by: int) -> int:
    """A size with another in the place of a symbol."""

    def replaced(atom: Atom) -> int:
        return by if atom is symbol else _changed(atom, lambda inner: substitute(inner, symbol, by))

    return _rebuilt(value, replaced)


def rewrite(value: int, size: int, by: int, known: Container[Symbol] = ()) -> int:
    """The same where ``size`` equals ``by``, with as much of it in terms of that as can be.

    What is not ``known`` is written in terms of what is.
    """
    if not isinstance(size, Size):
        return value
    lead, count = _leading(size, known)
    endless = any(_lies_within(atom, other) for atom in lead for term in size._terms for other in term)

    def replaced(value: int) -> int:
        while (times := _multiple(value, lead, count)) != 0:
            value += times * (by - size)
        return value

    def within(value: int) -> int:
        new = replaced(value)
        if endless and any(_holds(new, atom) for atom in lead):
            new = value  # in h - h // 2 = n, h is n + h // 2, which is n + (n + h // 2) // 2
        return _rebuilt(new, lambda atom: _changed(atom, within))

    return _rebuilt(replaced(value), lambda atom: _changed(atom, within))


def _holds(value: int, atom: Atom) -> bool:
    """Is an atom in a size, or in one of which an atom of it is made?"""
    atoms = [a for monomial in _terms_of(value) for a in monomial]
    return any(a == atom or _lies_within(atom, a) for a in atoms)


def _lies_within(atom: Atom, other: Atom) -> bool:
    """Is an atom in the sizes of which another is made?"""
    if isinstance(other, Symbol):
        return False
    made_of = (other.above,) if isinstance(other, Quotient) else other.members
    return any(_holds(size, atom) for size in made_of)


def write(value: int, of: Callable[[int], Any], functions: Mapping[str, Callable[[Any, Any], Any]]) -> Any:
    """A size in another arithmetic: ``of`` its symbols, by a "quotient", "max" and "min" of two."""

    def written(atom: Atom) -> Any:
        if isinstance(atom, Symbol):
            return of(Size({(atom,): 1}))
        if isinstance(atom, Quotient):
            return functions["quotient"](write(atom.above, of, functions), atom.below)
        return reduce(functions[atom.kind], (write(v, of, functions) for v in atom.members))

    made: Any = None
    for monomial, count in sorted(_terms_of(value).items(), key=lambda term: (not term[0], term[1] < 0)):
        often = count if made is None else abs(count)
        term = reduce(operator.mul, map(written, monomial)) if monomial else often
        term = term * often if monomial and often != 1 else term
        made = term if made is None else made + term if count > 0 else made - term
    return made


def _rebuilt(value: int, of: Callable[[Atom], int]) -> int:
    """A size with others in the places of its atoms."""
    if not isinstance(value, Size):
        return value
    return sum(count * math.prod(map(of, monomial)) for monomial, count in value._terms.items())


def _changed(atom: Atom, change: Callable[[int], int]) -> int:
    """An atom with others in the places of the sizes in it."""
    if isinstance(atom, Symbol):
        return Size({(atom,): 1})
    if isinstance(atom, Quotient):
        return change(atom.above) // atom.below
    return _extreme(atom.kind, [change(v) for v in atom.members])


# Its text ------------------------------------------------------------------------------------------


def spell(value: int, frame: str) -> str:
    """C of a size or number; symbols are members of ``frame``, such as ``f.``; without one, Python."""
    return f"({_spell(value, frame)})" if isinstance(value, Size) else str(value)


def _spell(value: int, frame: str) -> str:
    text = ""
    for monomial, count in sorted(_terms_of(value).items(), key=lambda term: (not term[0], term[1] < 0)):
        factors = _spell_monomial(monomial, frame)
        scale = abs(count)
        term = str(scale) if not monomial else factors if scale == 1 else f"{scale} * {factors}"
        sign = " - " if count < 0 else " + "
        text += sign + term if text else ("-" if count < 0 else "") + term
    return text


def _spell_monomial(monomial: Monomial, frame: str) -> str:
    return " * ".join(_spell_atom(atom, frame) for atom in monomial) if frame else _name(monomial)


def _name(monomial: Monomial) -> str:
    return " * ".join(atom.name for atom in monomial)


def _spell_atom(atom: Atom, frame: str) -> str:
    if isinstance(atom, Symbol):
        return frame + atom.name
    if isinstance(atom, Extreme):
        first, *rest = sorted((_spell(v, frame) for v in atom.members), key=_by_length)
        for text in rest:
            first = f"convoy_{atom.kind}({first}, {text})"
        return first
    above = _spell(atom.above, frame)
    if not frame:
        return f"({above} // {atom.below})" if as_symbol(atom.above) else f"(({above}) // {atom.below})"
    if bounds(atom.above)[0] < 0:  # C rounds to zero
        return f"convoy_floor({above}, {atom.below})"
    return f"(({above}) / {atom.below})"
