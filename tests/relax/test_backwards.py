"""Axes cut or read backwards, of known and of open sizes, lie in the region of what is around them."""

from __future__ import annotations

import numpy as np
import pytest
from open_models import Both, Sketch

INT64 = np.iinfo(np.int64)
CUTS = {
    "all": (-1, INT64.min, -1),
    "every other": (-1, INT64.min, -2),
    "down to the third": (INT64.max, 1, -1),
    "from the last but one": (-2, INT64.min, -3),
}


def turned(sizes: tuple[int | str, ...], axis: int, cut: tuple[int, int, int]) -> Both:
    begin, end, step = cut
    s = Sketch("n", 3, *sizes)
    x = s.add("Relu", s.add("Conv", "x", s.weight(8, 3, 3, 3), pads=[1] * 4))
    x = s.add("Slice", x, *(s.numbers(number) for number in (begin, end, axis, step)))
    channels = len(range(8)[begin:end:step]) if axis == 1 else 8
    return Both(s.model(s.add("Conv", x, s.weight(8, channels, 3, 3), pads=[1] * 4)), "portable")


@pytest.mark.slow
@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS)
def test_a_cut_backwards_is_in_the_region(cut: tuple[int, int, int], axis: int) -> None:
    both = turned((9, 7), axis, cut)
    assert (both.left, len(both.report.regions)) == ([], 1)
    both.check(2, 3, 9, 7)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [2, 3])
def test_so_is_one_of_an_open_axis(axis: int) -> None:
    both = turned(("h", "w"), axis, CUTS["all"])
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in ((1, 1), (5, 8), (33, 2)):
        both.check(2, 3, *size)


@pytest.mark.slow
def test_images_in_the_opposite_order_are_not_in_the_convolution_s_region() -> None:
    # the twin: an op mixes images along axis 0, and is too small here to be worth a call
    s = Sketch("n", 3, 8, 8)
    x = s.add("Slice", "x", s.numbers(-1), s.numbers(INT64.min), s.numbers(0), s.numbers(-1))
    both = Both(s.model(s.add("Conv", x, s.weight(8, 3, 3, 3))), "portable")
    assert [reason[:34] for reason in both.left] == ["given back: a region of one op mov"]
    both.check(5, 3, 8, 8)


@pytest.mark.slow
def test_channels_in_another_order_are_one_copy() -> None:
    s = Sketch(1, 3, "h", "w")
    x = s.add("Gather", "x", s.numbers(2, 1, 0), axis=1)
    both = Both(s.model(s.add("Conv", x, s.weight(8, 3, 3, 3))), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    assert not any("concat" in step for step in both.report.regions[0].steps)
    both.check(1, 3, 8, 9)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [2, 3, 4])
def test_volumes_are_turned_too(axis: int) -> None:
    s = Sketch(1, 2, 5, 6, 7)
    x = s.add("Relu", s.add("Conv", "x", s.weight(4, 2, 3, 3, 3), pads=[1] * 6))
    x = s.add("Slice", x, *(s.numbers(number) for number in (-1, INT64.min, axis, -1)))
    both = Both(s.model(s.add("Conv", x, s.weight(4, 4, 3, 3, 3), pads=[1] * 6)), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    both.check(1, 2, 5, 6, 7)
