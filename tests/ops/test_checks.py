"""The checks of the rows: each refusal with a twin that is taken."""

from __future__ import annotations

from typing import Any

import pytest

from convoy.ops.attributes import UNKNOWN_BOUNDS
from convoy.ops.layouts import TURN_IT, TURNED
from convoy.ops.moves import check_permutation
from convoy.ops.table import OF
from ops.plain_door import PlainReader, Value, call_of, check, const, random

X = Value((1, 4, 8, 8))
CONV = {
    "data_layout": "NCHW", "out_layout": "", "kernel_layout": "OIHW", "padding": (0, 1, 0, 1), "groups": 1,
    "strides": (1, 1), "dilation": (1, 1),
}  # fmt: skip
POOL = {
    "layout": "NCHW", "out_layout": "", "padding": (0, 0, 0, 0), "pool_size": (2, 2), "strides": (2, 2),
    "dilation": (1, 1), "count_include_pad": False,
}  # fmt: skip


def conv(weight: tuple[int, ...] = (6, 4, 3, 3), **changes: Any) -> Value:
    return call_of((1, 6, 8, 8), X, const(random(*weight)), **{**CONV, **changes})


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (conv(), None),
        (conv(out_layout="NCHW"), None),
        (conv((6, 2, 3, 3), groups=2), None),
        (conv(padding=(0, -1, 0, 0)), "expected padding that is not negative, got [0, -1, 0, 0]"),
        (conv(dilation=(0, 1)), "expected dilations ≥ 1, got [0, 1]"),
        (conv(strides=(1, 0)), "expected strides ≥ 1, got [1, 0]"),
        (conv(data_layout="NHWC"), f"expected data in NCHW, got NHWC; {TURNED}"),
        (conv(out_layout="NHWC"), "expected an output in NCHW, got NHWC"),
        (conv(kernel_layout="HWIO"), "expected a weight in OIHW, got HWIO"),
        (conv((4, 2, 3, 3), groups=4), "expected a weight of 1 input channels a group, got 2; fold's"),
    ],
)
def test_a_convolution(call: Value, reason: str | None) -> None:
    found = check("nn.conv2d", call)
    assert found is None if reason is None else (found or "").startswith(reason)


def test_what_a_door_does_not_turn_is_to_be_written_otherwise() -> None:
    found = check("nn.conv2d", conv(data_layout="NHWC"), turns=False)
    assert found == f"expected data in NCHW, got NHWC; {TURN_IT}"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"padding": (1, 1, 1, 1)}, None),
        ({"layout": "NHWC"}, "expected data in NCHW"),
        ({"padding": (-1, 0, 0, 0)}, "expected padding that is not negative"),
        ({"dilation": (1, 0)}, "expected dilations ≥ 1, got [1, 0]"),
        ({"padding": (2, 2, 0, 0)}, "expected a pixel in every window, got none in window"),
    ],
    ids=str,
)
def test_a_pool_sees_a_pixel_in_every_window(changes: dict[str, Any], reason: str | None) -> None:
    attrs = {**POOL, **changes}
    call = call_of((1, 4, 4, 4), X, **attrs)
    found = check("nn.max_pool2d", call)
    assert found is None if reason is None else (found or "").startswith(reason)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"method": "nearest"}, None),
        ({"method": "bicubic"}, "expected nearest or bilinear samples, got bicubic"),
        ({"layout": "NCDHW"}, "expected data in NCHW, got NCDHW"),
    ],
    ids=str,
)
def test_samples_of_a_grid(changes: dict[str, Any], reason: str | None) -> None:
    attrs = {"method": "bilinear", "layout": "NCHW", "padding_mode": "zeros", "align_corners": False}
    call = call_of((1, 4, 3, 5), X, Value((1, 2, 3, 5)), **{**attrs, **changes})
    found = check("image.grid_sample", call)
    assert found is None if reason is None else (found or "").startswith(reason)


@pytest.mark.parametrize(
    ("data", "grid", "reason"),
    [
        ((1, 4, 2, 2), const(random(1, 2, 3, 5)), None),
        ((3, 4, 2, 2), const(random(1, 2, 3, 5)), None),
        ((3, 4, 2, 2), Value((3, 2, 3, 5)), None),
        ((3, 4, 2, 2), const(random(3, 2, 3, 5)), "expected a constant along whose axis 0 is 1, got 3"),
        (("n", 4, 2, 2), Value(("n", 2, 3, 5)), None),
        ((1, 4, 2, 2), Value(("n", 2, 3, 5)), "expected data and places along whose axis 0 is 1, got n"),
        ((3, 4, 2, 2), Value((1, 2, 3, 5)), "expected data and places along whose axis 0 is 3, got 1"),
    ],
    ids=str,
)
def test_samples_of_a_grid_are_of_as_many_images(data: tuple[Any, ...], grid: Value, reason: Any) -> None:
    attrs = {"method": "bilinear", "layout": "NCHW", "padding_mode": "zeros", "align_corners": False}
    made = call_of((data[0], 4, 3, 5), Value(data), grid, **attrs)
    assert check("image.grid_sample", made) == reason


def test_an_adaptive_pool_divides_its_data() -> None:
    pools = (call_of((1, 4, 4, n), Value((1, 4, 8, 6)), layout="NCHW", out_layout="") for n in (3, 4))
    found = [check("nn.adaptive_avg_pool2d", pool) for pool in pools]
    assert found == [None, "expected an output that divides 8x6, got 4x4"]


def test_an_adaptive_pool_of_a_blocked_layout_is_left() -> None:
    pool = call_of((1, 1, 4, 4, 4), Value((1, 1, 8, 8, 4)), layout="NCHW4c", out_layout="")
    assert (check("nn.adaptive_avg_pool2d", pool) or "").startswith("expected data in NCHW, got NCHW4c")


@pytest.mark.parametrize(
    ("axis", "axes", "taken"), [(1, (2, 3), True), (1, (2,), False), (3, (1, 2), False)]
)
def test_norms_are_over_all_axes_behind_the_channels(axis: int, axes: tuple[int, ...], taken: bool) -> None:
    found = check("nn.group_norm", call_of(X.dims, X, axis=axis, norm_axes=axes))
    assert (found is None) is taken


def test_relax_ignores_the_flags_of_norms() -> None:
    # with scale=False gamma still counts in Relax's kernels; Relay's go by the flag
    flags = {"scale": False, "center": True}
    found = [
        OF["nn.group_norm"].relax_check(
            PlainReader(), call_of(X.dims, X, const([gamma] * 4), const([0] * 4), **flags)
        )
        for gamma in (1, 2)
    ]
    assert found == [None, "expected scale, or 1 in its place, got scale=False and other numbers"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"axes": (2, 3)}, None),
        ({"axes": ()}, "expected axes to take the variance over, got none"),
        ({"axes": (0,), "unbiased": False}, None),
        ({"axes": (0,), "unbiased": True}, "expected several numbers for an unbiased variance, got one"),
    ],
    ids=str,
)
def test_a_variance(given: dict[str, Any], reason: str | None) -> None:
    assert check("variance", call_of(X.dims, X, **given)) == reason


@pytest.mark.parametrize(
    ("mode", "widths", "reason"),
    [
        ("constant", [(0, 0), (1, 2)], None),
        ("constant", [(0, 0), (9, 9)], None),
        ("edge", [(0, 0), (9, 9)], None),
        ("reflect", [(0, 0), (3, 3)], None),
        ("reflect", [(0, 0), (4, 0)], "expected padding of at most 3 by reflect, got 4"),
        ("symmetric", [(0, 0), (0, 4)], None),
        ("wrap", [(0, 0), (0, 5)], "expected padding of at most 4 by wrap, got 5"),
        (None, [(0, 0), (1, 1)], "expected constant padding, got None"),
        ("constant", [(0, 0), (0, -1)], "expected padding that is not negative, got a crop"),
    ],
)
def test_padding_adds(mode: str, widths: Any, reason: str | None) -> None:
    call = call_of((1, 7), Value((1, 4)), pad_widths=widths, pad_value=0.0, pad_mode=mode)
    assert check("nn.pad", call) == reason


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        ((0.0, 6.0), None),
        (None, UNKNOWN_BOUNDS),
        ((6.0, 0.0), "expected bounds in ascending order, got 6 and 0"),
    ],
    ids=str,
)
def test_a_clip_has_bounds(bounds: Any, reason: str | None) -> None:
    assert check("clip", call_of(X.dims, X, bounds=bounds)) == reason


@pytest.mark.parametrize(
    ("slices", "reason"),
    [
        ([(1, 0, 4, 2)], None),
        ([(1, 3, 0, -1)], None),
        (None, UNKNOWN_BOUNDS),
    ],
    ids=str,
)
def test_a_slice_has_bounds(slices: Any, reason: str | None) -> None:
    assert check("strided_slice", call_of(X.dims, X, slices=slices)) == reason


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        ((5, 3), None),
        ((2, 5, 3), None),
        ((5,), "expected a second operand of two axes or more, got 1"),
    ],
    ids=str,
)
def test_a_product(second: tuple[int, ...], reason: str | None) -> None:
    for operand in (Value(second), const(random(*second))):
        assert check("matmul", call_of((1, 3), Value((1, 5)), operand)) == reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, None),
        ({"causal_mask": "BottomRight"}, None),
        ({"causal_mask": "Middle"}, "expected a causal mask TVM has, got Middle"),
        ({"window_size": 8}, "expected all keys to be seen, got a window of 8"),
    ],
    ids=str,
)
def test_an_attention(given: dict[str, Any], reason: str | None) -> None:
    x, attributes = Value((1, 5, 2, 4)), {"causal_mask": None, "window_size": None, **given}
    assert check("nn.attention", call_of(x.dims, x, x, x, **attributes)) == reason


def test_a_change_of_layout_moves_axes_only() -> None:
    assert check_permutation("NHWC", "NCHW") is None
    assert check_permutation("NCHW", "NCHW16c") is not None
