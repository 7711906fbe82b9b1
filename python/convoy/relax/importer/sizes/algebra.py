"""Arithmetic on numbers of which some are expressions of open sizes.

A whole number is an ``int`` or an expression of int64; what is no whole number is a ``float``, or a
``Ratio`` where it depends on an open size.  An operation gives None where its result is no such number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from math import inf, lcm
from operator import add
from typing import Any, NamedTuple, TypeAlias

import tvm
from tvm import tirx
from tvm.sym import Analyzer
from tvm_ffi import structural_equal, structural_hash

from convoy.graph.sizes import bounds
from convoy.relax.sizes import LATE, Lengths, least_variable

LARGEST = 2**31
"""Sizes are smaller: TVM counts many of them in 32 bits."""
LONGEST = 64
"""Remainders that are tried one by one, at most."""
FINEST = 1 << 10
"""A float is a ratio if it is a whole number of such parts: no product of it with a size is rounded."""


@dataclass(frozen=True)
class Ratio:
    """``top / bottom``, both whole numbers, the bottom above 0."""

    top: Any
    bottom: Any


Number: TypeAlias = Any
"""An int, a bool, a float, an expression or a ``Ratio``."""


Filled: TypeAlias = tuple[tirx.Var, ...]
"""Open sizes, one of which has to be at least 1."""


class _Simplest(NamedTuple):
    """An expression, its simplest form, and the sizes with which that is another number where all are 0."""

    value: Any
    form: Any
    filled: tuple[Filled, ...]


def _never(analyzer: Analyzer) -> bool:
    return False


def _is_simplified(value: Any, form: Any, analyzer: Analyzer) -> bool:
    return bool(structural_equal(form, analyzer.simplify(value)))


class Algebra:
    """What is known of the open sizes of a model."""

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._with_empty = Analyzer()
        self.filled: dict[Filled, None] = {}
        """Symbols of which something was concluded that is wrong where they are 0."""
        self.given: dict[tirx.Var, tuple[str, int]] = {}
        """Symbols of the open sizes of a model's inputs: which it is, and how often the symbol.

        None in a branch, which not every call takes.
        """
        self.learned: dict[tirx.Var, tuple[Any, str]] = {}
        """Symbols, and the size that says most of each by being at least 1, and what that is of."""
        self._least: dict[tirx.Var, int] = {}
        """The least that each symbol may be."""
        self.far: dict[tirx.Var, None] = {}
        """Symbols of numbers that may be farther off than they say."""
        self._simplest: dict[int, list[_Simplest]] = {}
        """By the hash of an expression: a network asks for a few again and again."""

    def bind(self, dims: Iterable[Any]) -> None:
        """Let the symbols among these sizes be at least 1, and those that a run finds at least 0."""
        for dim in dims:
            if isinstance(dim, tirx.Var):
                if dim not in self._least:
                    self._simplest.clear()
                self._least.setdefault(dim, int(dim.name != LATE))
                self._analyzer.bind(dim, _range(int(dim.name != LATE)))
                self._with_empty.bind(dim, _range(0))

    def learn(self, size: Any, of: str) -> None:
        """Let a size be at least 1: what it is of has such at each call that does not end."""
        found = least_variable(size, 1)
        if found is None:
            return
        variable, least = found
        if self.given.get(variable, ("", 0))[1] == 1 and least > self._least[variable]:
            self._simplest.clear()
            self._least[variable] = least
            self.learned[variable] = (size, of)
            for analyzer in (self._analyzer, self._with_empty):
                analyzer.bind(variable, _range(least), allow_override=True)

    def new_sizes(self, count: int) -> list[tirx.Var]:
        """Symbols that a run finds."""
        symbols = [tirx.Var(LATE, "int64") for _ in range(count)]
        self.bind(symbols)
        return symbols

    def simplify(self, value: Any) -> Any:
        """The same number; an int if it is one."""
        if isinstance(value, int | float | Ratio):
            return value
        known = self._simplest.setdefault(int(structural_hash(value)), [])
        found = next((each for each in known if structural_equal(each.value, value)), None)
        if found is None:
            found = self._find_simplest(value)
            known.append(found)
        self.filled |= dict.fromkeys(found.filled)
        return found.form

    def _find_simplest(self, value: Any) -> _Simplest:
        forms = [self._analyzer.simplify(value)]
        filled = self._filled_for(value, partial(_is_simplified, value, forms[0]))
        if _has_rests(forms[0]):
            without = _without_rests(forms[0])
            forms.append(self._analyzer.simplify(without))
            filled += self._filled_for(without, partial(_is_simplified, without, forms[1]))
        forms += [form for form in map(_one_form, (value, *forms)) if form is not None]
        simplest = min(reversed(forms), key=_complexity)
        form = int(simplest) if isinstance(simplest, tirx.IntImm) else simplest
        return _Simplest(value, form, tuple(dict.fromkeys(filled)))

    def _filled_for(self, value: Any, holds: Callable[[Analyzer], bool]) -> tuple[Filled, ...]:
        """Which sizes of a value have to be at least 1 for what was found of it: one of them, or each."""
        if holds(self._with_empty):
            return ()
        symbols = tuple(tirx.analysis.undefined_vars(value))
        open_sizes = tuple(v for v in symbols if v.name != LATE)
        if len(open_sizes) > 1:
            with self._with_empty.constraint_scope(reduce(add, open_sizes) >= 1):
                if holds(self._with_empty):
                    return (open_sizes,)
        return tuple((v,) for v in open_sizes)

    def _note_filled(self, value: Any, holds: Callable[[Analyzer], bool] = _never) -> None:
        self.filled |= dict.fromkeys(self._filled_for(value, holds))

    def sizes(self, tensor: Any) -> list[Any] | None:
        """The lengths of a tensor's axes; None if they are unknown."""
        shape = getattr(tensor.ty, "shape", None)
        return (
            None
            if shape is None or not hasattr(shape, "values")
            else list(map(self.simplify, shape.values))
        )

    # What is certain -------------------------------------------------------------------------------

    def holds(self, condition: Any) -> bool | None:
        """Is a condition true, whatever the open sizes are?  None: now and then."""
        if isinstance(condition, bool):
            return condition
        if self._prove(condition):
            return True
        return False if self._prove(tirx.Not(condition)) else None

    def _prove(self, condition: Any) -> bool:
        if not self._analyzer.can_prove(condition):
            return self._prove_by_bounds(condition) or self._prove_by_remainders(condition)
        self._note_filled(condition, lambda analyzer: analyzer.can_prove(condition))
        return True

    def _prove_by_bounds(self, condition: Any) -> bool:
        """An order of two numbers, by the bounds of their difference as a size."""
        if not isinstance(condition, tirx.GE | tirx.GT | tirx.LE | tirx.LT):
            return False
        greater = isinstance(condition, tirx.GE | tirx.GT)
        high, low = (condition.a, condition.b) if greater else (condition.b, condition.a)
        least = int(isinstance(condition, tirx.GT | tirx.LT))
        if self._lower_bound(high - low, 1) < least:
            return False
        if self._lower_bound(high - low, 0) < least:
            self._note_filled(condition)
        return True

    def _lower_bound(self, number: Any, filled: int) -> float:
        """What a number is at least, where sizes of which nothing was learned are at least so much."""
        least = {v: n if n > 1 else min(n, filled) for v, n in self._least.items()}
        size = Lengths(least).size(number)
        known = least.keys() >= set(tirx.analysis.undefined_vars(number))
        return bounds(size)[0] if size is not None and known else -inf

    def _prove_by_remainders(self, condition: Any) -> bool:
        """A condition on one symbol that is divided, for each remainder: ``t - t // 2 >= 0``."""
        symbols, divisors = list(tirx.analysis.undefined_vars(condition)), _divisors(condition)
        period = lcm(*divisors)
        if len(symbols) != 1 or not 1 < period <= LONGEST:
            return False
        quotient = tirx.Var("quotient", "int64")
        analyzer = Analyzer()
        analyzer.bind(quotient, _range(0))
        late = symbols[0].name == LATE  # it may be 0, and no check says that it is not
        for remainder in range(0 if late else 1, period + 1):
            case = replace(condition, symbols[0], quotient * period + remainder)
            if case is None or not _is_proven(analyzer, case):
                return False
        if not _is_proven(analyzer, replace(condition, symbols[0], tirx.IntImm("int64", 0))):
            self._note_filled(condition)
        return True

    def same(self, a: Any, b: Any) -> bool:
        """Are two whole numbers certainly equal?"""
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        left, right = _expr(a), _expr(b)
        if self._analyzer.can_prove_equal(left, right):
            self._note_filled(tirx.EQ(left, right), lambda analyzer: analyzer.can_prove_equal(left, right))
            return True
        return self._prove_by_remainders(tirx.EQ(_expr(a), _expr(b)))

    def at_least(self, a: Any, least: Any) -> bool:
        """Is ``a`` certainly at least so much?"""
        return self._conclude(lambda: self.compare("GreaterOrEqual", a, least) is True)

    def compare(self, op: str, a: Number, b: Number) -> bool | None:
        """The result of ONNX's op of that name; None if it depends on an open size."""
        left, right = self._crosswise(a, b)
        if left is None:
            return None
        made = _COMPARISONS[op](left, right)
        return self.holds(made if isinstance(made, bool) else tvm.tirx.convert(made))

    def widest(self, value: Any) -> int | None:
        """The most that a number from 0 on is at any call, if that is few: 7 for ``-h % 8``."""
        if isinstance(value, int):
            return value if value >= 0 else None
        size = Lengths(dict.fromkeys(self._least, 0)).size(value)
        if size is not None and self._least.keys() >= set(tirx.analysis.undefined_vars(value)):
            low, high = bounds(size)
            if low >= 0 and high < LONGEST:
                return int(high)
        most = lcm(*_divisors(value)) - 1
        certain = 0 < most < LONGEST and self.at_least(value, 0) and self.at_least(most, value)
        return most if certain else None

    # Arithmetic ------------------------------------------------------------------------------------

    def add(self, a: Number, b: Number) -> Number:
        return self._linear(a, b, lambda x, y: x + y)

    def subtract(self, a: Number, b: Number) -> Number:
        return self._linear(a, b, lambda x, y: x - y)

    def multiply(self, a: Number, b: Number) -> Number:
        if _are_plain(a, b):
            return a * b
        x, y = _ratio(a), _ratio(b)
        return None if x is None or y is None else self._quotient(x.top * y.top, x.bottom * y.bottom, a, b)

    def divide(self, a: Number, b: Number) -> Number:
        """As ONNX divides: whole numbers towards 0."""
        if _are_whole(a, b):
            return self.divide_whole(a, b)
        if _are_plain(a, b):
            return a / b if b else None
        x, y = _ratio(a), _ratio(b)
        if x is None or y is None or not self.at_least(y.top, 1):
            return None
        if not isinstance(b, Ratio) and y.bottom != 1:
            return None  # that quotient is rounded
        return self._quotient(x.top * y.bottom, x.bottom * y.top, a, b)

    def divide_whole(self, a: Any, b: Any) -> Any:
        """``a / b``, rounded towards 0."""
        if isinstance(a, int) and isinstance(b, int):
            return None if not b else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
        if not self.at_least(b, 1):
            return None
        if self.at_least(a, 0):
            return self.simplify(tirx.floordiv(_expr(a), _expr(b)))
        return self.simplify(tirx.truncdiv(_expr(a), _expr(b)))

    def modulo(self, a: Any, b: Any) -> Any:
        """The remainder with the sign of ``b``."""
        if not _are_whole(a, b):
            return None
        if isinstance(a, int) and isinstance(b, int):
            return a % b if b else None
        if not self.at_least(b, 1):
            return None
        for shift in (0, b):
            if self._conclude(partial(self._is_rest, a, shift, b)):
                return self.add(a, shift)
        return self.simplify(tirx.floormod(_expr(a), _expr(b)))

    def _is_rest(self, a: Any, shift: Any, divisor: Any) -> bool:
        rest = self.add(a, shift)
        return self.at_least(rest, 0) and self.at_least(self.subtract(divisor, rest), 1)

    def _conclude(self, find: Callable[[], bool], *, of_none: bool = False) -> bool:
        """What is found; if that is no, no size has to be at least 1 for it.

        With ``of_none`` it is no, too, where a size has to be.
        """
        before = dict(self.filled)
        found = find() and not (of_none and self.filled != before)
        if not found:
            self.filled = before
        return found

    def least(self, a: Number, b: Number) -> Number:
        return self._choose(a, b, tirx.min, min)

    def most(self, a: Number, b: Number) -> Number:
        return self._choose(a, b, tirx.max, max)

    def round_down(self, a: Number) -> Number:
        """The largest whole number that is not above ``a``."""
        ratio = _ratio(a)
        return None if ratio is None else self.simplify(_floor(ratio.top, ratio.bottom))

    def round_up(self, a: Number) -> Number:
        ratio = _ratio(a)
        if ratio is None:
            return None
        return self.simplify(_floor(ratio.top + ratio.bottom - 1, ratio.bottom))

    def cut_off(self, a: Number) -> Number:
        """Rounded towards 0."""
        if isinstance(a, float):
            return int(a) if abs(a) < 2**62 else None
        ratio = _ratio(a)
        return None if ratio is None or not self.at_least(ratio.top, 0) else self.round_down(a)

    def product(self, numbers: Sequence[Any]) -> Any:
        return self.simplify(reduce(lambda x, y: x * y, numbers, 1))

    def share(self, whole: Sequence[Any], known: Sequence[Any]) -> Any:
        """What is left of a product where other factors are known: the -1 of a Reshape.

        A factor may be written as ``fit`` says.
        """
        left = list(whole)
        others = []
        for factor in known:
            forms = [factor] if isinstance(factor, int) else [factor, self.simplify(_round_down(factor))]
            match = next(
                (i for i, other in enumerate(left) if any(self.same(form, other) for form in forms)), None
            )
            if match is None:
                others.append(factor)
            else:
                del left[match]
        top, bottom = self.product(left), self.product(others)
        if isinstance(top, int) and isinstance(bottom, int):
            return top // bottom if bottom and top % bottom == 0 else None
        self.at_least(bottom, 1)  # else a call ends
        return self.simplify(tirx.floordiv(_expr(top), _expr(bottom)))

    def fit(self, target: Sequence[Any], whole: Sequence[Any]) -> list[Any]:
        """A shape whose elements are as many as those of ``whole``.

        Exporters write lengths of convolutions by ONNX's ``Div``, which rounds towards 0; where only
        rounding down gives as many elements at every size, that is meant.
        """
        down = [d if isinstance(d, int) else self.simplify(_round_down(d)) for d in target]
        return down if self.same(self.product(down), self.product(whole)) else list(target)

    def _linear(self, a: Number, b: Number, operation: Any) -> Number:
        if _are_plain(a, b):
            return operation(a, b)
        x, y = _ratio(a), _ratio(b)
        if x is None or y is None:
            return None
        return self._quotient(operation(x.top * y.bottom, y.top * x.bottom), x.bottom * y.bottom, a, b)

    def _quotient(self, top: Any, bottom: Any, *operands: Number) -> Number:
        """``top / bottom``: a whole number if the operands were."""
        top, bottom = self.simplify(top), self.simplify(bottom)
        if _are_whole(*operands):
            return top
        whole = self.simplify(_floor(top, bottom))
        if self.same(self.simplify(whole * bottom), top):
            return Ratio(whole, 1)
        return Ratio(top, bottom)

    def _crosswise(self, a: Number, b: Number) -> tuple[Any, Any]:
        """Two numbers to compare in place of these."""
        if _are_plain(a, b):
            return a, b
        x, y = _ratio(a), _ratio(b)
        if x is None or y is None:
            return None, None
        return _expr(x.top * y.bottom), _expr(y.top * x.bottom)

    def _choose(self, a: Number, b: Number, symbolic: Any, plain: Any) -> Number:
        if _are_plain(a, b):
            return plain(a, b)
        if _are_whole(a, b):
            for larger, smaller in ((a, b), (b, a)):
                if self._conclude(partial(self.at_least, larger, smaller), of_none=True):
                    return larger if plain is max else smaller
            return self.simplify(symbolic(_expr(a), _expr(b)))
        x, y = _ratio(a), _ratio(b)
        if x is None or y is None:
            return None
        tops = (_expr(each) for each in (x.top * y.bottom, y.top * x.bottom))
        return self._quotient(symbolic(*tops), x.bottom * y.bottom, a, b)


def replace(expr: Any, symbol: tirx.Var, value: Any) -> Any:
    """An expression of arithmetic with a value in the place of a symbol; None for one of other things."""
    if isinstance(expr, tirx.Var):
        return value if expr.same_as(symbol) else expr
    if isinstance(expr, tirx.IntImm):
        return expr
    parts = [replace(part, symbol, value) for part in _operands(expr)]
    return None if not parts or any(part is None for part in parts) else type(expr)(*parts)


def _is_proven(analyzer: Analyzer, condition: Any) -> bool:
    """Is a condition certain?  One that divides by 0 is none: TVM raises an error there."""
    return not _divides_by_none(analyzer, condition) and bool(analyzer.can_prove(condition))


def _divides_by_none(analyzer: Analyzer, expr: Any) -> bool:
    if any(_divides_by_none(analyzer, part) for part in _operands(expr)):
        return True
    if not isinstance(expr, tirx.FloorDiv | tirx.FloorMod | tirx.Div | tirx.Mod):
        return False
    divisor = analyzer.simplify(expr.b)
    return isinstance(divisor, tirx.IntImm) and int(divisor) == 0


def is_clipped(number: Any) -> bool:
    """Is it made of the smaller or larger of two?  TVM's arithmetic of sums of such may not end (0.27)."""
    return isinstance(number, tirx.Min | tirx.Max) or any(map(is_clipped, _operands(number)))


def is_late(number: Any) -> bool:
    """Does a whole number depend on data?"""
    return not isinstance(number, int) and any(v.name == LATE for v in tirx.analysis.undefined_vars(number))


def _round_down(expr: Any) -> Any:
    """An expression of arithmetic whose quotients are rounded down."""
    parts = [_round_down(part) for part in _operands(expr)]
    if not parts:
        return expr
    return tirx.FloorDiv(*parts) if isinstance(expr, tirx.Div) else type(expr)(*parts)


def _has_rests(expr: Any) -> bool:
    """Does an expression divide, and is a remainder in it, or a divisor below 0?"""
    return (
        isinstance(expr, tirx.FloorMod) or _divides_backwards(expr) or any(map(_has_rests, _operands(expr)))
    )


def _divides_backwards(expr: Any) -> bool:
    """Is a divisor below 0?  TVM makes ``h % -8`` of ``(8 - h % 8) % 8``."""
    here = isinstance(expr, tirx.FloorDiv | tirx.FloorMod) and _number(expr.b) < 0
    return here or any(map(_divides_backwards, _operands(expr)))


def _without_rests(expr: Any) -> Any:
    """An expression of arithmetic whose remainders are quotients, and whose divisors are above 0."""
    parts = [_without_rests(part) for part in _operands(expr)]
    if not parts:
        return expr
    if not isinstance(expr, tirx.FloorDiv | tirx.FloorMod) or not (divisor := _number(expr.b)):
        return type(expr)(*parts)
    above = parts[0] if divisor > 0 else parts[0] - (divisor + 1)  # rounded up, of which the negative is
    quotient = tirx.floordiv(above, tirx.IntImm("int64", abs(divisor)))
    quotient = quotient if divisor > 0 else -quotient
    return quotient if isinstance(expr, tirx.FloorDiv) else parts[0] - quotient * divisor


def _one_form(expr: Any) -> Any:
    """The same number as sizes write it; None where it is not made of several quotients.

    ``n - n // 2`` is ``(n + 1) // 2``: TVM knows quotients of those, and not of the other.
    """
    if is_clipped(expr) or _count_divisions(expr) < 2:
        return None
    lengths = Lengths(dict.fromkeys(tirx.analysis.undefined_vars(expr), 0))
    size = lengths.size(expr)
    return None if size is None else _expr(lengths.expression(size))


def _complexity(expr: Any) -> tuple[bool, int, int]:
    """Is something divided by less than 0, how many divisions are of divisions, and how long is it all?"""
    return _divides_backwards(expr), _count_nested(expr), len(str(expr))


def _count_nested(expr: Any, inside: int = 0) -> int:
    here = isinstance(expr, tirx.FloorDiv | tirx.FloorMod | tirx.Div | tirx.Mod)
    return here * inside + sum(_count_nested(part, inside + here) for part in _operands(expr))


def _count_divisions(expr: Any) -> int:
    return isinstance(expr, tirx.FloorDiv | tirx.FloorMod) + sum(map(_count_divisions, _operands(expr)))


def _number(expr: Any) -> int:
    """A constant; 0 for an expression."""
    return int(expr.value) if isinstance(expr, tirx.IntImm) else 0


def _operands(expr: Any) -> list[Any]:
    return [getattr(expr, name) for name in ("a", "b") if hasattr(expr, name)]


def _divisors(expr: Any) -> set[int]:
    found = {d for part in _operands(expr) for d in _divisors(part)}
    if isinstance(expr, tirx.FloorDiv | tirx.FloorMod) and isinstance(expr.b, tirx.IntImm):
        found.add(abs(int(expr.b)) or 1)
    return found


def _range(least: int) -> tvm.ir.Range:
    return tvm.ir.Range(tirx.IntImm("int64", least), tirx.IntImm("int64", LARGEST))


_COMPARISONS = {
    "Equal": lambda a, b: a == b if isinstance(a, int | float) else tirx.EQ(a, b),
    "Less": lambda a, b: a < b,
    "LessOrEqual": lambda a, b: a <= b,
    "Greater": lambda a, b: a > b,
    "GreaterOrEqual": lambda a, b: a >= b,
}


def is_whole(number: Number) -> bool:
    """Is it an int or an expression?"""
    return not isinstance(number, float | Ratio)


def _are_whole(*numbers: Number) -> bool:
    return all(map(is_whole, numbers))


def _are_plain(*numbers: Number) -> bool:
    return all(isinstance(number, int | float) for number in numbers)


def _ratio(number: Number) -> Ratio | None:
    if number is None:
        return None
    if isinstance(number, Ratio):
        return number
    if not isinstance(number, float):
        return Ratio(number, 1)
    if number != number or abs(number) > LARGEST:
        return None
    exact = Fraction(number)
    return Ratio(exact.numerator, exact.denominator) if exact.denominator <= FINEST else None


def _floor(top: Any, bottom: Any) -> Any:
    if isinstance(top, int) and isinstance(bottom, int):
        return top // bottom
    return tirx.floordiv(_expr(top), _expr(bottom))


def _expr(number: Any) -> Any:
    return tirx.IntImm("int64", number) if isinstance(number, int) else number
