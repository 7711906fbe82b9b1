"""``auto_pad`` SAME with strides, of open sizes, as in TensorFlow's networks: a call knows the padding."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import numpy_helper
from open_models import Both, Sketch

from convoy.offload.faults import RegionWarning

MODES = ("SAME_UPPER", "SAME_LOWER")
SIZES = ((32, 33), (1, 1), (2, 3), (7, 16), (21, 64))


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_network_of_same_padding_is_one_region_at_every_size(mode: str) -> None:
    s = Sketch("n", 3, "h", "w")
    x = s.add("Conv", "x", s.weight(16, 3, 3, 3), s.weight(16), strides=[2, 2], auto_pad=mode)
    x = s.add("Conv", s.add("Relu", x), s.weight(16, 1, 5, 5), strides=[2, 2], auto_pad=mode, group=16)
    x = s.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], auto_pad=mode)
    x = s.add("Conv", x, s.weight(8, 16, 2, 2), strides=[1, 2], auto_pad=mode)
    x = s.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], auto_pad=mode)
    both = Both(
        s.model(s.add("Conv", x, s.weight(8, 4, 3, 3), strides=[3, 3], auto_pad=mode, group=2)), "portable"
    )
    assert (both.left, len(both.report.regions)) == ([], 1)
    for images, size in zip((1, 2, 1, 3, 1), SIZES, strict=True):
        both.check(images, 3, *size)


@pytest.mark.slow
@pytest.mark.parametrize(("window", "stride"), [(3, 3), (7, 3), (2, 3), (5, 4)])
def test_padding_that_a_network_computes_takes_every_size(window: int, stride: int) -> None:
    s = Sketch(1, 4, "h", "w")
    size = s.add("Slice", s.add("Shape", "x"), s.numbers(2), s.numbers(4))
    steps = s.add("Div", s.add("Add", size, s.scalar(stride - 1)), s.scalar(stride))
    wanted = s.add("Add", s.add("Mul", steps, s.scalar(stride)), s.scalar(window - stride))
    both = s.add("Max", s.add("Sub", wanted, size), s.numbers(0, 0))
    before = s.add("Div", both, s.scalar(2))
    none = s.numbers(0, 0)
    pads = s.add("Concat", none, before, none, s.add("Sub", both, before), axis=0)
    y = s.add("Conv", s.add("Pad", "x", pads), s.weight(8, 4, window, window), strides=[stride, stride])
    found = Both(s.model(y), "portable")
    assert (found.left, len(found.report.regions)) == ([], 1)
    for height, width in ((1, 1), (2, 1), (1, 9), (3, 2), (8, 7)):
        found.check(1, 4, height, width)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("op", ["Conv", "MaxPool"])
def test_rows_and_volumes_are_padded_so_too(op: str, mode: str) -> None:
    for sizes, given in ((["w"], [(5,), (8,)]), ([4, "h", "w"], [(4, 5, 8), (4, 6, 7)])):
        s = Sketch("n", 8, *sizes)
        window = [3] * len(sizes)
        weights = [s.weight(8, 8, *window)] if op == "Conv" else []
        strides = [2] * len(sizes)
        both = Both(
            s.model(s.add(op, "x", *weights, kernel_shape=window, strides=strides, auto_pad=mode)),
            "portable",
        )
        assert (both.left, len(both.report.regions)) == ([], 1)
        for size in given:
            both.check(2, 8, *size)


@pytest.mark.slow
@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("mode", MODES)
def test_a_mean_counts_the_pixels_that_are_there(mode: str, counts: int) -> None:
    s = Sketch("n", 8, "h", "w")
    pool = s.add(
        "AveragePool", "x", kernel_shape=[3, 3], strides=[2, 2], auto_pad=mode, count_include_pad=counts
    )
    both = Both(s.model(pool), "portable")
    for size in SIZES:
        both.check(1, 8, *size)


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 2, "n"])
def test_several_volumes_are_divided_by_the_count_of_one(images: int | str) -> None:
    # the count is a volume that is computed slice by slice; what it divides is as many as there are images
    s = Sketch(images, 4, 6, 7, "w")
    pool = s.add("AveragePool", "x", kernel_shape=[3, 3, 3], strides=[2, 2, 2], auto_pad="SAME_UPPER")
    with warnings.catch_warnings():
        warnings.simplefilter("error", RegionWarning)
        both = Both(s.model(pool), "portable")
    for width in (1, 2, 9):
        both.check(2 if images == "n" else int(images), 4, 6, 7, width)


@pytest.mark.slow
def test_one_open_side_is_enough() -> None:
    # the padding of the fixed one is a number, and smaller than the widest
    s = Sketch(1, 8, "h", 12)
    x = s.add("Conv", "x", s.weight(8, 8, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    both = Both(
        s.model(s.add("Conv", x, s.weight(8, 1, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER", group=8)),
        "haswell",
    )
    assert (both.left, len(both.report.regions)) == ([], 1)
    for height in (12, 13, 1):
        both.check(1, 8, height, 12)


@pytest.mark.slow
def test_a_long_chain_stays_short() -> None:
    # sizes of sizes of sizes: each convolution makes ⌊(n - 1) / 2⌋ + 1, whatever it was padded by
    s = Sketch(1, 4, "h", "w")
    x = "x"
    for _ in range(6):
        x = s.add("Conv", x, s.weight(4, 4, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER")
    both = Both(s.model(x), "portable")
    assert (both.left, len(both.report.regions)) == ([], 1)
    both.check(1, 4, 65, 130)


@pytest.mark.slow
def test_bytes_of_open_sizes_are_computed_in_floats_in_the_region() -> None:
    # its padding is known at the call, and what says which kernels were not taken asked for numbers
    s = Sketch(1, 8, "h", "w")
    x = quantised(s, "x", 0.05)
    s.constants.append(numpy_helper.from_array(s.random.integers(-9, 9, (8, 8, 3, 3)).astype(np.int8), "w"))
    w = s.add("DequantizeLinear", "w", quantity(s, 0.1), zero(s, np.int8))
    y = s.add("Conv", x, w, strides=[2, 2], auto_pad="SAME_UPPER")
    both = Both(s.model(quantised(s, y, 0.2)), "haswell")
    assert (both.left, len(both.report.regions)) == ([], 1)
    for size in ((8, 9), (5, 4)):
        both.check(1, 8, *size)


def quantity(s: Sketch, value: float) -> str:
    s.constants.append(numpy_helper.from_array(np.array(value, np.float32), f"w{len(s.constants)}"))
    return s.constants[-1].name


def zero(s: Sketch, dtype: type) -> str:
    s.constants.append(numpy_helper.from_array(np.array(3, dtype), f"w{len(s.constants)}"))
    return s.constants[-1].name


def quantised(s: Sketch, x: str, scale: float) -> str:
    parameters = quantity(s, scale), zero(s, np.uint8)
    return s.add("DequantizeLinear", s.add("QuantizeLinear", x, *parameters), *parameters)
