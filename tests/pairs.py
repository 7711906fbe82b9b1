"""Fewer combinations of parameters: of any two of them, each two values still meet."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any


def pairs(*values: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Combinations of one of each of ``values``, so many that every two of two parameters meet.

    Each is the first of those that have the most pairs that no earlier one has.
    """
    held = [list(some) for some in values]
    met = {
        numbers: set(combinations(enumerate(numbers), 2))
        for numbers in product(*(range(len(some)) for some in held))
    }
    left = set().union(*met.values())
    found = []
    while left:
        best = max(met, key=lambda numbers: len(met[numbers] & left))
        left -= met[best]
        found.append(tuple(some[i] for some, i in zip(held, best, strict=True)))
    return found
