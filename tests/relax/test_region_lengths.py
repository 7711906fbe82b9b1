"""The sizes of a region, in those of its inputs."""

from __future__ import annotations

import itertools

import pytest
from tvm import tirx

from convoy.graph.sizes import as_symbol, hint, symbols
from convoy.relax.sizes import Dim, RegionLengths

h, w, n, m = (tirx.Var(name, "int64") for name in "hwnm")
IMAGE, KEPT = (h // 16) * (w // 16), n * m
"""Patches of an image, and as many rows as data say, as DINOv3 has them."""


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_length_that_is_the_sum_of_others_is_no_symbol_of_its_own(order: tuple[int, ...]) -> None:
    inputs: list[Dim] = [KEPT, IMAGE - KEPT + 1, IMAGE + 1]
    lengths = RegionLengths([1, 8, inputs[i]] for i in order)
    sizes = [lengths.size(length) for length in inputs]
    assert None not in sizes
    assert sizes[0] + sizes[1] == sizes[2]  # type: ignore[operator]
    assert len({symbol for size in sizes for symbol in symbols(size)}) == 2
    assert len(lengths.made) == 2


@pytest.mark.parametrize("order", list(itertools.permutations([8 * h, 4 * h * w, 2 * w])))
def test_an_axis_that_is_so_often_a_variable_is_as_often_a_symbol(order: tuple[Dim, ...]) -> None:
    lengths = RegionLengths([[1, *order]])
    height, width, area = (lengths.size(length) for length in (h, w, 4 * h * w))
    assert as_symbol(height) is not None
    assert as_symbol(width) is not None
    assert lengths.size(8 * h) == 8 * height  # type: ignore[operator]
    assert lengths.size((8 * h) // 2 + 3) == 4 * height + 3  # type: ignore[operator]
    assert lengths.size(h // 2) == height // 2  # type: ignore[operator]
    assert area == 4 * height * width  # type: ignore[operator]


def test_half_of_what_is_so_often_a_quotient_is_a_product() -> None:
    lengths = RegionLengths([[1, 3, 32 * ((h + 31) // 32), 8]])
    tiles = lengths.size((h + 31) // 32)
    assert as_symbol(tiles) is not None
    assert lengths.size(32 * ((h + 31) // 32)) == 32 * tiles  # type: ignore[operator]
    assert lengths.size(16 * ((h + 31) // 32)) == 16 * tiles  # type: ignore[operator]
    assert lengths.size(h) is None  # the twin: 32 of its values have that quotient
    sums = RegionLengths([[1, 6 * n * m + 6 * h]])
    assert sums.size(3 * n * m + 3 * h) == 3 * sums.size(n * m + h)  # type: ignore[operator]
    assert sums.size(3 * n * m) is None


def test_a_length_follows_from_a_sum_and_the_rest_of_it() -> None:
    lengths = RegionLengths([[n, 8], [n + m, 8], [IMAGE + m, 8]])
    first, whole, patches = lengths.made.values()
    assert lengths.size(m) == whole - first
    assert lengths.size(KEPT) == first * (whole - first)
    assert lengths.size(IMAGE) == patches - whole + first


def test_a_difference_of_lengths_of_which_nothing_is_known_is_likely_as_long_as_any() -> None:
    lengths = RegionLengths([[1, tirx.max(n - m, 0)]])
    (size,) = lengths.made.values()
    assert hint(size) == hint(RegionLengths([[1, n]]).size(n))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_both_halves_of_a_length_say_it(order: tuple[int, int]) -> None:
    halves = [h // 2, h - h // 2]
    lengths = RegionLengths([[1, *(halves[i] for i in order)]])
    lower, upper = (lengths.size(half) for half in halves)
    assert lengths.size(h) == lower + upper  # type: ignore[operator]
    assert RegionLengths([[1, h // 2, h // 3]]).size(h) is None  # the twin


WHOLES = [tirx.max(h - 4, 0), h + w, h * w, (h + 3) // 4]


@pytest.mark.parametrize("whole", WHOLES, ids=str)
@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_both_halves_of_any_length_say_it(whole: Dim, order: tuple[int, int]) -> None:
    halves = [(whole + 1) // 2, whole - (whole + 1) // 2]
    lengths = RegionLengths([[1, *(halves[i] for i in order)]])
    upper, lower = (lengths.size(half) for half in halves)
    assert lengths.size(whole) == upper + lower  # type: ignore[operator]
    assert lengths.size(halves[0] + halves[1]) == upper + lower  # type: ignore[operator]
    assert RegionLengths([[1, halves[0], whole // 3]]).size(whole) is None  # the twin


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_both_parts_of_a_doubled_length_say_it(order: tuple[int, int]) -> None:
    parts = [h * 2 // 3, h * 2 - h * 2 // 3]
    lengths = RegionLengths([[1, *(parts[i] for i in order)]])
    first, second = (lengths.size(part) for part in parts)
    assert lengths.size(parts[0] + parts[1]) == first + second  # type: ignore[operator]


def test_a_length_that_follows_from_no_others_is_a_symbol() -> None:
    # the twin: what is left of an image without the rows that are kept says nothing of either
    lengths = RegionLengths([[IMAGE - KEPT + 1, 8], [IMAGE * 2 + KEPT, 8]])
    assert len(lengths.made) == 2
    assert lengths.size(KEPT) is None
    assert lengths.size(IMAGE) is None


def test_what_a_length_repeats_is_computed_once() -> None:
    """Forty sums of two equal parts name their first part 2^40 times."""
    lengths = RegionLengths([[1, h, 3]])
    length: Dim = h
    for _ in range(40):
        length = tirx.Add(length, length)
    height = lengths.size(h)
    assert lengths.size(length) == 2**40 * height  # type: ignore[operator]
    assert lengths.size(tirx.Add(length, h)) == (2**40 + 1) * height  # type: ignore[operator]
    assert lengths.size(tirx.Add(length, n)) is None  # the twin: of n nothing is known
