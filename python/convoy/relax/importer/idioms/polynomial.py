"""Read elementwise arithmetic as a polynomial, whatever order an exporter wrote it in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .scope import Scope, op_name

Monomial = tuple[int, ...]
"""The exponent of each atom."""
Polynomial = dict[Monomial, float]

DEPTH = 8
"""Nested ops looked through; the longest idiom (tanh GELU) has six."""


def read_polynomial(expr: Any, atoms: list[Any], scope: Scope, depth: int = DEPTH) -> Polynomial | None:
    """``expr`` as a polynomial in ``atoms``, or None if something else takes part.

    Looks through add, subtract, multiply, divide and power by scalar constants.
    """
    zero = (0,) * len(atoms)
    for i, atom in enumerate(atoms):
        if scope.same(expr, atom):
            return {(*zero[:i], 1, *zero[i + 1 :]): 1.0}
    number = scope.scalar(expr)
    if number is not None:
        return {zero: number}
    call = scope.value(expr)
    op = op_name(call)
    if depth == 0 or op not in ("add", "subtract", "multiply", "divide", "power", "negative", "square"):
        return None
    left = read_polynomial(call.args[0], atoms, scope, depth - 1)
    if left is None:
        return None
    if op == "negative":
        return {m: -c for m, c in left.items()}
    if op == "square":
        return _multiply(left, left)
    right = read_polynomial(call.args[1], atoms, scope, depth - 1)
    if right is None:
        return None
    if op in ("add", "subtract"):
        sign = 1.0 if op == "add" else -1.0
        return {m: left.get(m, 0.0) + sign * right.get(m, 0.0) for m in left.keys() | right.keys()}
    if op == "multiply":
        return _multiply(left, right)
    if set(right) != {zero} or right[zero] == 0:
        return None
    if op == "divide":
        return {m: c / right[zero] for m, c in left.items()}
    return _power(left, right[zero], zero)


def equals(polynomial: Polynomial | None, expected: Polynomial, tolerance: float = 1e-4) -> bool:
    """Same terms, coefficients alike to ``tolerance`` (exporters round them to a few digits)."""
    if polynomial is None:
        return False
    terms: Iterable[Monomial] = polynomial.keys() | expected.keys()
    return all(
        abs(polynomial.get(m, 0.0) - expected.get(m, 0.0))
        <= tolerance * max(abs(expected.get(m, 0.0)), 1e-6)
        for m in terms
    )


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
