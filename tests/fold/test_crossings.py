"""fold/crossing.py: which maps come through which op, each with one that does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_door import POOL, make_node

from convoy.fold.affine import Affine
from convoy.fold.crossing import Crossing, read_crossing

IMAGE = (1, 3, 8, 8)
POSITIVE = Affine(1, np.array([0.5, 2.0, 1.0]), np.zeros(3))
NEGATIVE = Affine(1, np.array([0.5, -2.0, 1.0]), np.zeros(3))
ZERO = Affine(1, np.array([0.5, 0.0, 1.0]), np.zeros(3))
SHIFT = Affine(1, np.ones(3), np.array([0.0, 1.0, 0.0]))


def crossing(name: str, result: tuple[int, ...] | None = IMAGE, **attrs: Any) -> Crossing | None:
    return read_crossing(make_node(name, IMAGE, result=result, **attrs))


def passes(found: Crossing | None, *maps: Affine) -> list[bool]:
    assert found is not None
    return [not found.refusal(affine) for affine in maps]


def test_relu_lets_through_what_keeps_the_sign() -> None:
    for name in ("nn.relu", "nn.leakyrelu", "nn.leaky_relu"):
        assert passes(crossing(name), POSITIVE, ZERO, NEGATIVE, SHIFT) == [True, True, False, False]


def test_max_pool_lets_through_what_keeps_the_order() -> None:
    found = crossing("nn.max_pool2d", **POOL)
    assert passes(found, POSITIVE, SHIFT, ZERO, NEGATIVE) == [True, True, False, False]


@pytest.mark.parametrize(
    ("changes", "shifts"),
    [
        ({}, True),
        ({"padding": (1, 1, 1, 1)}, True),  # only pixels are counted
        ({"padding": (1, 1, 1, 1), "count_include_pad": True}, False),
        ({"count_include_pad": True}, True),  # there are none to count
        ({"ceil_mode": True}, False),
        ({"padding": (2, 2, 2, 2)}, False),  # a window may see no pixel
    ],
    ids=str,
)
def test_average_pool_takes_a_shift_where_it_counts_pixels_only(changes: dict, shifts: bool) -> None:
    found = crossing("nn.avg_pool2d", **{**POOL, **changes})
    assert passes(found, NEGATIVE, SHIFT) == [True, shifts]


def test_a_max_pool_whose_windows_may_be_empty_is_crossed_by_nothing() -> None:
    assert crossing("nn.max_pool2d", **{**POOL, "padding": (2, 2, 2, 2)}) is None
    assert crossing("nn.max_pool2d", **{**POOL, "strides": (4, 4), "ceil_mode": True}) is None
    assert crossing("nn.max_pool2d", **{**POOL, "dilation": (2, 2), "padding": (1, 1, 1, 1)}) is None


def test_a_pool_mixes_pixels_along_its_own_axes() -> None:
    along_rows = Affine(2, np.full(8, 2.0), np.zeros(8))
    for name, attrs in (("nn.max_pool2d", POOL), ("nn.avg_pool2d", POOL), ("nn.global_avg_pool2d", POOL)):
        assert passes(crossing(name, **attrs), POSITIVE, along_rows) == [True, False]


def test_whole_pools_let_all_through() -> None:
    for name in ("nn.adaptive_avg_pool2d", "nn.global_avg_pool2d"):
        assert passes(crossing(name, layout="NCHW"), NEGATIVE, SHIFT) == [True, True]


def test_a_transpose_takes_the_axis_along() -> None:
    for axes, output in (((0, 2, 3, 1), 3), ((0, 2, -1, 1), 3), (None, 2)):
        found = crossing("permute_dims", axes=axes)
        assert found is not None
        after = found.up(POSITIVE)
        assert after is not None
        assert after.axis == output
        assert found.down(after).axis == 1


def test_a_mean_loses_the_axes_it_sums() -> None:
    kept = crossing("mean", axis=(2, 3), keepdims=True, result=(1, 3, 1, 1))
    dropped = crossing("mean", axis=(0, 2), keepdims=False, result=(3, 8))
    summed = crossing("mean", axis=(1,), keepdims=False, result=(1, 8, 8))
    assert kept is not None
    assert dropped is not None
    assert summed is not None
    assert [getattr(found.up(SHIFT), "axis", None) for found in (kept, dropped, summed)] == [1, 0, None]
    assert crossing("mean", axis=None, keepdims=False) is None
    assert crossing("mean", axis=(1,), keepdims=False, exclude=True) is None


def test_a_reshape_keeps_axes_that_are_more_than_one() -> None:
    def shapes(before: tuple[int | None, ...], after: tuple[int | None, ...]) -> Crossing | None:
        return read_crossing(make_node("reshape", before, result=after))

    flat = shapes((1, 3, 1, 1), (1, 3))
    assert flat is not None
    assert flat.down(Affine(1, np.ones(3), np.ones(3))).axis == 1
    moved = shapes((1, 1, 3), (3, 1))
    assert moved is not None
    assert moved.down(Affine(0, np.ones(3), np.ones(3))).axis == 2
    assert shapes((None, 3, 1, 1), (None, 3)) is not None
    assert shapes((2, 3), (3, 2)) is None
    assert shapes((2, 3), (6,)) is None
    assert shapes((None, None), (None, None)) is None  # which is which is not known


@pytest.mark.parametrize("name", ["nn.batch_flatten", "flatten", "copy", "squeeze"])
def test_whatever_keeps_elements_in_place_is_a_reshape(name: str) -> None:
    found = read_crossing(make_node(name, (1, 3, 1, 1), result=(1, 3)))
    assert found is not None
    assert found.down(SHIFT).axis == 1
    assert read_crossing(make_node(name, (1, 3, 2, 2), result=(1, 12))) is None


def test_other_ops_are_crossed_by_nothing() -> None:
    for name in ("tanh", "nn.softmax", "add", "nn.conv2d"):
        assert read_crossing(make_node(name, IMAGE, result=IMAGE)) is None
