"""Read elementwise arithmetic as a polynomial, whatever order a frontend wrote it in.

It reads any program that an ``Arithmetic`` can look into: a graph, or a module of either TVM.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

Expr = Any
"""An expression of the program."""
Monomial = tuple[int, ...]
"""The exponent of each atom."""
Polynomial = dict[Monomial, float]

DEPTH = 8
"""Nested ops looked through; the longest idiom (tanh GELU) has six."""


class Arithmetic(Protocol):
    """How to look into a program."""

    def scalar(self, expr: Expr) -> float | None:
        """The number that ``expr`` is, if it is a constant of one element."""

    def operation(self, expr: Expr) -> tuple[str, Sequence[Expr]]:
        """The kind and operands of the elementwise op that makes ``expr``; an empty kind for anything else.

        A kind is a ``graph.ops.UnaryKind`` or ``BinaryKind``.
        """

    def clip(self, expr: Expr) -> tuple[Expr, float, float] | None:
        """x, low and high if ``expr`` is x clipped to [low, high]."""

    def same(self, a: Expr, b: Expr) -> bool:
        """Do both stand for one tensor?"""


def read_polynomial(expr: Expr, atoms: list[Expr], at: Arithmetic, depth: int = DEPTH) -> Polynomial | None:
    """``expr`` as a polynomial in ``atoms``, or None if something else takes part.

    Looks through add, subtract, multiply, divide and power by scalar constants.
    """
    zero = (0,) * len(atoms)
    for i, atom in enumerate(atoms):
        if at.same(expr, atom):
            return {(*zero[:i], 1, *zero[i + 1 :]): 1.0}
    number = at.scalar(expr)
    if number is not None:
        return {zero: number}
    kind, args = at.operation(expr)
    if depth == 0 or kind not in ("add", "sub", "mul", "div", "pow", "neg", "square"):
        return None
    left = read_polynomial(args[0], atoms, at, depth - 1)
    if left is None:
        return None
    if kind == "neg":
        return {m: -c for m, c in left.items()}
    if kind == "square":
        return _multiply(left, left)
    right = read_polynomial(args[1], atoms, at, depth - 1)
    if right is None:
        return None
    if kind in ("add", "sub"):
        sign = 1.0 if kind == "add" else -1.0
        return {m: left.get(m, 0.0) + sign * right.get(m, 0.0) for m in left.keys() | right.keys()}
    if kind == "mul":
        return _multiply(left, right)
    if set(right) != {zero} or right[zero] == 0:
        return None
    if kind == "div":
        return {m: c / right[zero] for m, c in left.items()}
    return _power(left, right[zero], zero)


def read_line(expr: Expr, x: Expr, at: Arithmetic) -> tuple[float, float] | None:
    """a and b where ``expr`` is a·x + b, and a is not 0."""
    line = read_polynomial(expr, [x], at)
    if line is None or not set(line) <= {(0,), (1,)} or not line.get((1,)):
        return None
    return line[(1,)], line.get((0,), 0.0)


def equals(polynomial: Polynomial | None, expected: Polynomial) -> bool:
    """Same terms, coefficients alike to 1e-4 (exporters round them to a few digits)."""
    if polynomial is None:
        return False
    terms: Iterable[Monomial] = polynomial.keys() | expected.keys()
    return all(
        abs(polynomial.get(m, 0.0) - expected.get(m, 0.0)) <= 1e-4 * max(abs(expected.get(m, 0.0)), 1e-6)
        for m in terms
    )


def look_inside(expr: Expr, at: Arithmetic, depth: int) -> list[Expr]:
    """``expr`` and what it is computed from by arithmetic, at most ``depth`` ops back."""
    found = [expr]
    kind, args = at.operation(expr)
    if depth and kind in ("add", "sub", "mul", "div", "pow", "square"):
        for argument in args:
            found += look_inside(argument, at, depth - 1)
    return found


def find_atoms(expr: Expr, at: Arithmetic) -> list[Expr]:
    """Candidates for x: what the arithmetic inside an activation is made of, nearest last."""
    return [e for e in reversed(look_inside(expr, at, depth=6)) if at.scalar(e) is None]


def _multiply(left: Polynomial, right: Polynomial) -> Polynomial:
    product: Polynomial = {}
    for m, a in left.items():
        for n, b in right.items():
            key = tuple(i + j for i, j in zip(m, n, strict=True))
            product[key] = product.get(key, 0.0) + a * b
    return product


def _power(base: Polynomial, exponent: float, zero: Monomial) -> Polynomial | None:
    if exponent not in (1.0, 2.0, 3.0):
        return None
    result: Polynomial = {zero: 1.0}
    for _ in range(int(exponent)):
        result = _multiply(result, base)
    return result
