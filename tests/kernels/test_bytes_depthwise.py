"""Depthwise convolutions of bytes, and groups of a few channels."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import backend
from convoy.kernels.conv2d.depthwise import PackDepthwiseBytes, PackDepthwisePairs
from convoy.kernels.conv2d.quads import Quads
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES
from quantising import Quantised, agree

VNNI = MACHINES["znver4"]


def depthwise(
    q: Quantised, x: str, kernel: int, stride: int = 1, dilation: int = 1, filters: int = 1
) -> str:
    channels = q.b.shape_of(x)[1]
    pairs = {"stride": (stride, stride), "dilation": (dilation, dilation)}
    return q.conv(x, channels * filters, kernel, groups=channels, **pairs)


@pytest.mark.slow
def test_kernels_strides_and_residuals_agree() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 21, 16, 20), 0.03, 117)
    a = q.bytes(q.unary(depthwise(q, x, 3), "clip", a=0.0, b=6.0), 0.02)
    b = q.bytes(depthwise(q, a, 5, 2), 0.03, 120)
    c = q.bytes(depthwise(q, a, 3, 2), 0.03, 131)
    d = q.bytes(q.add(depthwise(q, a, 7), x), 0.04, 131)
    agree(q.graph(b, c, d), q.numbers())


@pytest.mark.slow
def test_dilation_multipliers_activations_and_floats_agree() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 24, 13, 11), 0.03, 117)
    a = q.bytes(depthwise(q, x, 3, dilation=3), 0.03, 100)
    b = q.bytes(q.unary(depthwise(q, x, 3, filters=2), "hardswish"), 0.02, 20)
    agree(q.graph(b, q.bytes(q.unary(depthwise(q, a, 3)), 0.02)), q.numbers())


@pytest.mark.slow
def test_groups_of_a_few_channels_agree() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 32, 9, 10), 0.03, 117)
    a = q.bytes(q.conv(x, 32, 3, groups=8), 0.03, 100)
    agree(q.graph(q.bytes(q.conv(a, 32, 3, groups=16, stride=(2, 2)), 0.03, 100)), q.numbers())


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "size", "kernel"), [(2, (1, 1), 5), (2, (1, 1), 7)])
def test_a_small_map_of_few_channels_has_whole_pixels(
    channels: int, size: tuple[int, int], kernel: int
) -> None:
    # one group of a few channels, which a direct convolution would read as cells of four
    q = Quantised()
    x = q.bytes(q.input(1, channels, *size), 0.03, 117)
    graph = q.graph(q.bytes(q.conv(x, channels, kernel), 0.03, 100))
    agree(graph, q.numbers())


@pytest.mark.parametrize(("dilation", "expected"), [(5, "int8"), (6, "float32")])
def test_taps_too_far_apart_are_multiplied_as_floats(dilation: int, expected: str) -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 32, 40, 40), 0.03, 117)
    graph, report = q.graph(q.bytes(depthwise(q, x, 3, dilation=dilation), 0.03, 100)), Report()
    backend.generate(graph, "region", VNNI, Options(threads=1), report)
    (region,) = report.regions
    steps = zip(region.ops, region.details, strict=True)
    assert [detail.precision for op, detail in steps if op == "conv2d"] == [expected]


def test_weights_of_four_taps_are_moved_by_what_a_quad_lags() -> None:
    w = np.arange(1, 6, dtype=np.int8).reshape(1, 1, 1, 5)
    packed = PackDepthwiseBytes("w", 1, Quads(5, 2, 1)).pack({"w": w})
    assert packed.reshape(2, 2, 4).tolist() == [[[1, 2, 3, 4], [5, 0, 0, 0]], [[0, 0, 1, 2], [3, 4, 5, 0]]]


def test_weights_of_two_rows_lie_side_by_side_and_an_odd_one_beside_zeros() -> None:
    w = np.arange(1, 7, dtype=np.int8).reshape(1, 1, 3, 2)
    packed = PackDepthwisePairs("w", 1, Quads(3, 1, 2)).pack({"w": w})
    pairs = packed.view(np.int16).reshape(2, 3, 2)
    assert pairs.tolist() == [[[1, 3], [0, 0], [2, 4]], [[5, 0], [0, 0], [6, 0]]]


@pytest.mark.slow
def test_long_strides_agree() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 11, 40, 90), 0.03, 117)
    agree(q.graph(q.bytes(depthwise(q, x, 5, 6), 0.03, 120)), q.numbers())


def test_floats_win_where_bytes_take_several_times_as_long() -> None:
    # without vectors of bytes a depthwise kernel takes longer than one of floats and both conversions
    q = Quantised()
    graph = q.graph(q.bytes(depthwise(q, q.bytes(q.input(1, 32, 28, 28), 0.03, 117), 3), 0.03, 100))
    found = {}
    for name in ("x86-64", "haswell", "znver4"):
        report = Report()
        backend.generate(graph, "region", MACHINES[name], Options(threads=1), report)
        (region,) = report.regions
        steps = zip(region.ops, region.details, strict=True)
        (found[name],) = [detail.precision for op, detail in steps if op == "conv2d"]
    assert found == {"x86-64": "float32", "haswell": "int8", "znver4": "int8"}
