"""offload/reasons.py: each refusal with a twin that is taken."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from convoy.errors import ConvoyError
from convoy.offload import reasons


@pytest.mark.parametrize(
    ("dtype", "lengths", "reason"),
    [
        ("float32", (1, 3, 8, 8), None),
        ("float32", ("n", 3, 8, 8), None),  # how many images is known at run time
        ("float32", (), None),
        ("float16", (1, 3), "expected float32, got float16"),
        ("", (1, 3), "expected float32, got an unknown dtype"),
        ("float32", None, "expected a known shape, got an unknown one"),
        ("float32", (1, "h // T.int64(2)", 3), "expected axis 1 of known length, got h // 2"),
        ("float32", (1, 0, 3), "expected something to compute, got the empty shape [1, 0, 3]"),
        ("float32", (2, 2**15, 2**15), "expected at most 2147483647 elements, got 2147483648"),
        ("float32", (1, 2**15, 2**15), None),
    ],
    ids=str,
)
def test_a_tensor(dtype: str, lengths: Any, reason: str | None) -> None:
    found = reasons.tensor(dtype, lengths)
    assert found is None if reason is None else (found or "").startswith(reason)


def test_a_constant_that_is_missing() -> None:
    assert reasons.not_constant("weight", parameter=True).endswith("got a parameter; bind it")
    assert reasons.not_constant("weight", parameter=False).endswith("got a run-time value")


def test_images_that_are_not_along_axis_zero() -> None:
    known = reasons.images_along_axis_zero([(2, 3), (3, 2)])
    assert "got [2, 3], [3, 2]; take one image" in known
    assert "take one image" not in reasons.images_along_axis_zero([("n", 3), (3, 2)])


def test_what_a_backend_says() -> None:
    assert reasons.in_words("no kernel for it") == "no kernel for it"
    assert reasons.in_words(None) is None
    assert reasons.in_words("") is None
    assert reasons.in_words(False) is None
    with pytest.raises(
        ConvoyError, match=r"annotate: refuse: expected a reason in words or None, got True"
    ):
        reasons.in_words(True)


def test_layouts() -> None:
    assert reasons.layouts("NCHW", "NCHW") is None
    assert reasons.layouts("NCHW", "NCHW", "NCHW", "OIHW", "OIHW") is None
    assert reasons.layouts("NHWC", "NCHW") == f"expected data in NCHW, got NHWC; {reasons.TURNED}"
    assert (reasons.layouts("NHWC", "NCHW", remedy=reasons.TURN_IT) or "").endswith(reasons.TURN_IT)
    assert reasons.layouts("NCHW", "NCHW", "NHWC") == "expected an output in NCHW, got NHWC"
    assert reasons.layouts("NCHW", "NCHW", "", "HWIO", "OIHW") == "expected a weight in OIHW, got HWIO"


def test_a_change_of_layout_moves_axes_only() -> None:
    assert reasons.permutation("NHWC", "NCHW") is None
    assert reasons.permutation("NCHW", "NCHW16c") is not None


def test_a_convolution() -> None:
    attrs = {"data_layout": "NCHW", "out_layout": "", "kernel_layout": "OIHW", "padding": (0, 1, 0, 1)}
    assert reasons.convolution(SimpleNamespace(**attrs), "NCHW", "OIHW") is None
    cropped = SimpleNamespace(**{**attrs, "padding": (0, -1, 0, 0)})
    found = reasons.convolution(cropped, "NCHW", "OIHW")
    assert found == "expected padding that is not negative, got [0, -1, 0, 0]"
    last = SimpleNamespace(**{**attrs, "data_layout": "NHWC"})
    assert "expected data in NCHW" in (reasons.convolution(last, "NCHW", "OIHW") or "")


def test_filters_of_a_group() -> None:
    assert reasons.filters(8, (16, 4, 3, 3), 2) is None
    assert reasons.filters("c", (16, 4, 3, 3), 2) is None
    assert "expected a weight of 1 input channels a group, got 2" in (
        reasons.filters(8, (8, 2, 3, 3), 8) or ""
    )


POOL = {
    "layout": "NCHW", "out_layout": "", "padding": (0, 0, 0, 0), "pool_size": (2, 2), "strides": (2, 2),
    "dilation": (1, 1),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "sides", "reason"),
    [
        ({}, (0, 0, 0, 0), None),
        ({"padding": (1, 1, 1, 1)}, (1, 1, 1, 1), None),
        ({"layout": "NHWC"}, (0, 0, 0, 0), "expected data in NCHW"),
        ({"padding": (-1, 0, 0, 0)}, (-1, 0, 0, 0), "expected padding that is not negative"),
        ({"padding": (2, 2, 0, 0)}, (2, 2, 0, 0), "expected a pixel in every window, got none in window"),
    ],
    ids=str,
)
def test_a_pool_sees_a_pixel_in_every_window(changes: dict, sides: Any, reason: str | None) -> None:
    attrs = SimpleNamespace(**{**POOL, **changes})
    found = reasons.pool(attrs, "NCHW", (8, 8), (4, 4), sides, padded=False)
    assert found is None if reason is None else (found or "").startswith(reason)


def test_an_adaptive_pool_divides_its_data() -> None:
    assert reasons.adaptive_pool((8, 6), (4, 3)) is None
    assert reasons.adaptive_pool((8, 6), (3, 3)) == "expected an output that divides 8x6, got 3x3"


def test_norms_are_over_all_axes_behind_the_channels() -> None:
    assert reasons.norm(1, (2, 3), 4) is None
    assert reasons.norm(1, (2,), 4) is not None
    assert reasons.norm(3, (1, 2), 4) is not None


def test_padding_adds() -> None:
    assert reasons.pad("constant", [(0, 0), (1, 2)]) is None
    assert reasons.pad("reflect", [(1, 1)]) == "expected constant padding, got reflect"
    assert reasons.pad("constant", [(0, -1)]) == "expected padding that is not negative, got a crop"


def test_bounds_steps_and_matrices() -> None:
    assert reasons.bounds((0.0, 6.0)) is None
    assert reasons.bounds(None) == reasons.UNKNOWN_BOUNDS
    assert reasons.bounds((6.0, 0.0)) == "expected bounds in ascending order, got 6 and 0"
    assert reasons.steps((1, 2)) is None
    assert reasons.steps((1, -1)) is not None
    assert reasons.matmul(2) is None
    assert reasons.matmul(3) == "expected a weight of shape [K, N], got 3 axes"
