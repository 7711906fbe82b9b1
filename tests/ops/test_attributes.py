"""ops/attributes.py: attributes of both TVMs in one normal form."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.graph.sizes import open_size
from convoy.ops.attributes import WHOLE, from_zero, pair, permutation, piece, sides, spans


def test_axes_are_counted_from_the_front() -> None:
    assert [from_zero(axis, 4) for axis in (0, 3, -1, -4)] == [0, 3, 3, 0]
    assert permutation((0, -1, 1, 2), 4) == (0, 3, 1, 2)
    assert permutation(None, 3) == (2, 1, 0)


def test_pairs_of_one_and_two_dimensions() -> None:
    assert pair([3]) == (1, 3)
    assert pair([3, 5]) == (3, 5)


@pytest.mark.parametrize(
    ("padding", "ndim", "wanted"),
    [
        ((1, 2, 3, 4), 4, (1, 2, 3, 4)),
        ((1, 2), 4, (1, 2, 1, 2)),
        ((1,), 4, (1, 1, 1, 1)),
        ((1, 2), 3, (0, 1, 0, 2)),
        ((1,), 3, (0, 1, 0, 1)),
    ],
)
def test_padding_has_four_sides(padding: tuple[int, ...], ndim: int, wanted: tuple[int, ...]) -> None:
    assert sides(padding, ndim) == wanted


@pytest.mark.parametrize(
    ("begin", "end", "step"),
    [
        (1, 3, 1),
        (-3, -1, 1),
        (0, 100, 2),
        (3, 1, 1),
        (5, 0, -2),
        (-1, -WHOLE, -1),
        (WHOLE, -5, -3),
        (0, WHOLE, 1),
        (2, WHOLE, 1),
    ],
)
def test_a_slice_is_cut_as_numpy_cuts_it(begin: int, end: int, step: int) -> None:
    data = np.arange(6)
    found = spans((1, 6), (1,), (begin,), (end,), (step,))
    assert found is not None
    cut = data
    for axis, b, e, s in found:
        assert axis == 1
        cut = data[b:e:s] if e >= 0 else data[b::s]
    np.testing.assert_array_equal(cut, data[begin:end:step])


def test_a_whole_axis_is_not_cut_whatever_its_length() -> None:
    assert spans((1, "n"), (1,), (0,), (WHOLE,), (1,)) == []
    assert spans((1, "n"), (1,), (1,), (WHOLE,), (1,)) is None
    assert spans((1, "n"), (1,), (0,), (5,), (1,)) is None
    assert spans((1, 5), (1,), (0,), (5,), (1,)) == []


@pytest.mark.parametrize(
    ("begin", "end", "step", "wanted"),
    [
        (-1, -WHOLE - 1, -1, ("n - 1", "-1")),
        (WHOLE, -WHOLE, -2, ("n - 1", "-1")),
        (-2, -4, -1, ("n - 2", "n - 4")),
        (2, 0, -1, ("2", "0")),
        (3, 0, -1, None),
        (-1, -6, -1, None),
        (-1, 0, -1, ("n - 1", "0")),
        (-4, 0, -1, None),
    ],
)
def test_an_open_axis_is_cut_backwards_where_every_call_cuts_alike(
    begin: int, end: int, step: int, wanted: tuple[str, str] | None
) -> None:
    n = open_size("n", 10, least=3)
    found = spans((1, n), (1,), (begin,), (end,), (step,))
    if wanted is None:
        assert found is None
    else:
        assert found is not None
        ((axis, *cut, by),) = found
        assert (axis, tuple(map(repr, cut)), by) == (1, wanted, step)


def test_pieces_of_a_split_follow_one_another() -> None:
    assert [piece(2, (3, 1, 4), index) for index in range(3)] == [(2, 0, 3, 1), (2, 3, 4, 1), (2, 4, 8, 1)]
