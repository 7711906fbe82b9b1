"""ops/resize.py: which resizes are taken; test_resize_pixels.py of tests/relax asks TVM itself."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from convoy.ops.resize import (
    COORDINATES,
    ROUNDINGS,
    bilinear_places,
    nearest_pixels,
    refuse_resize,
    rounding,
    tvm_pixels,
)

LINEAR = {
    "layout": "NCHW", "method": "linear", "rounding_method": "",
    "coordinate_transformation_mode": "half_pixel",
}  # fmt: skip
NEAREST = {**LINEAR, "method": "nearest_neighbor"}
BEFORE, AFTER = (1, 3, 4, 4), (1, 3, 8, 8)


def refuse(attrs: dict[str, str], before: Any = BEFORE, after: Any = AFTER) -> str | None:
    return refuse_resize(SimpleNamespace(**attrs), before, after)


@pytest.mark.parametrize("coordinates", COORDINATES)
def test_linear_resizes_of_all_coordinates_are_taken(coordinates: str) -> None:
    attrs = {**LINEAR, "coordinate_transformation_mode": coordinates}
    assert refuse(attrs) is None
    assert refuse(attrs, (1, 3, "h", 4), (1, 3, "2h", 8)) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"layout": "NHWC"}, "expected data in NCHW, got NHWC; write the op in that layout"),
        ({"method": "cubic"}, "expected nearest or linear interpolation, got cubic"),
        ({"coordinate_transformation_mode": "tf_crop_and_resize"}, "expected coordinates half_pixel,"),
    ],
    ids=str,
)
def test_others_are_refused(changes: dict[str, str], reason: str) -> None:
    assert (refuse({**LINEAR, **changes}) or "").startswith(reason)


def test_a_rounding_that_is_not_known() -> None:
    attrs = {**NEAREST, "coordinate_transformation_mode": "align_corners"}
    assert refuse(attrs) == f"expected rounding {', '.join(ROUNDINGS)}, got round"
    assert refuse({**attrs, "rounding_method": "round_prefer_floor"}) is None
    assert rounding("", "half_pixel") == "floor"
    assert rounding("floor", "align_corners") == "floor"
    assert rounding("banker", "half_pixel") is None


def test_a_nearest_resize_is_taken_where_float32_rounds_alike() -> None:
    attrs = {**NEAREST, "coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
    assert refuse(attrs) is None
    found = [
        refuse(
            {**NEAREST, "coordinate_transformation_mode": c, "rounding_method": r},
            (1, 1, s, s),
            (1, 1, o, o),
        )
        for c, r, s, o in product(COORDINATES, ROUNDINGS, (3, 7, 10), (5, 21, 29))
    ]
    words = [reason for reason in found if reason is not None]
    assert 0 < len(words) < len(found)
    assert all(reason.startswith("TVM's float32 coordinates round to other pixels") for reason in words)


@pytest.mark.parametrize("picked", ROUNDINGS)
@pytest.mark.parametrize("coordinates", COORDINATES)
def test_pixels_are_within_the_image(coordinates: str, picked: str) -> None:
    for size, output in product((1, 2, 5), (1, 3, 10)):
        pixels = nearest_pixels(coordinates, picked, size, output)
        assert len(pixels) == output
        assert 0 <= pixels.min() <= pixels.max() < size
        assert (np.diff(pixels) >= 0).all()
        assert all(
            0 <= theirs.min() <= theirs.max() < size
            for theirs in tvm_pixels(coordinates, picked, size, output)
        )


def test_places_of_a_doubled_row() -> None:
    np.testing.assert_allclose(bilinear_places("half_pixel", 2, 4), [0.0, 0.25, 0.75, 1.0])
    np.testing.assert_allclose(bilinear_places("align_corners", 3, 5), [0.0, 0.5, 1.0, 1.5, 2.0])
    np.testing.assert_allclose(bilinear_places("asymmetric", 2, 4), [0.0, 0.5, 1.0, 1.0])
