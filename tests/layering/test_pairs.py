"""Fewer combinations of parameters leave no two values apart (tests/pairs.py)."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from pairs import pairs


@pytest.mark.parametrize("sizes", [(2, 3), (3, 3, 2), (5, 2, 3), (2, 2, 2, 2)])
def test_every_two_values_meet(sizes: tuple[int, ...]) -> None:
    values = [range(size) for size in sizes]
    found = pairs(*values)
    assert len(found) == len(set(found))
    for (i, one), (j, other) in combinations(enumerate(values), 2):
        assert {(row[i], row[j]) for row in found} == {*product(one, other)}


def test_of_three_parameters_fewer_are_left_than_there_are() -> None:
    assert len(pairs("abcde", (1, 2, 3), (True, False))) == 15
    assert pairs("abc", (1, 2)) == [*product("abc", (1, 2))]
