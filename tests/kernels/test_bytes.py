"""Kernels of bytes: which fusions become them, that what they compute is right, and when floats win."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.ops import (
    Binary,
    ChannelShuffle,
    Concat,
    Conv2d,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Transpose,
)
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from quantising import Cases, Quantised, agree, each_way, ways_in_turn
from together import Asked

VNNI = MACHINES["znver4"]

case = CASES = Cases()


@case
def halo_of_zero_points_strides_and_dilation(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 21, 13, 11), 0.03, 117)
    y = q.bytes(q.unary(q.conv(x, 40, 3)), 0.02)
    z = q.bytes(q.conv(y, 33, 3, stride=(2, 2)), 0.03, 120)
    return [z, q.bytes(q.conv(y, 9, 3, dilation=(2, 2), bias=False), 0.03, 131)]


@case
def pointwise_with_residual_of_another_scale(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 48, 7, 7), 0.03, 128)
    y = q.bytes(q.conv(x, 48, 3), 0.04, 90)
    z = q.bytes(q.unary(q.add(q.conv(x, 48), y)), 0.02)
    return [z, q.bytes(q.conv(z, 20, stride=(2, 2)), 0.02, 100)]


@case
def what_is_added_to_is_rounded_before(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 9, 9), 0.03, 100)
    y = q.bytes(q.unary(q.conv(x, 32)), 0.05)
    z = q.unary(q.add(q.bytes(q.conv(y, 32, 3), 0.0613, 111), x), "clip", a=-1.0, b=2.5)
    return [q.bytes(z, 0.0371, 99)]


@case
def activations_that_are_no_clamps(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 6, 6), 0.03, 110)
    y = q.bytes(q.add(q.unary(q.conv(x, 32), "silu"), x), 0.03, 100)
    return [q.bytes(q.unary(q.add(q.conv(y, 32), x), "sigmoid"), 0.005)]


@case
def a_first_layer(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 3, 19, 23), 0.03, 114)
    return [q.bytes(q.unary(q.conv(x, 24, 3, stride=(2, 2))), 0.02), q.bytes(q.conv(x, 17, 7), 0.03, 140)]


@case
def groups_of_whole_blocks_and_of_parts(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 64, 7, 6), 0.03, 121)
    y = q.bytes(q.conv(x, 96, 3, groups=2), 0.03, 117)
    return [y, q.bytes(q.conv(y, 36, 3, groups=12), 0.03, 118)]


@case
def signed_bytes_and_unsigned_weights(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 8, 8), 0.03, -12, "int8")
    y = q.bytes(q.conv(x, 24, 3, dtype="uint8", zero=128), 0.02, 5, "int8")
    return [y, q.bytes(q.conv(y, 24), 0.02, 0, "int8")]


@case
def floats_between(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 8, 8), 0.03, 110)
    y = q.unary(q.conv(x, 40, 3), "hardswish")  # nobody quantises this one
    return [q.bytes(y, 0.02, 10), q.bytes(q.unary(y, "tanh"), 0.01, 128)]


@case
def sums_as_large_as_they_can_be(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 512, 3, 3), 0.001, 1)  # bytes are 0 and 255
    return [q.bytes(q.conv(x, 16, 3), 0.02, 100)]


@case
def pools(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 36, 11, 9), 0.03, 117)
    windows = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}
    most = q.bytes(q.op(Pool2d, x, shape=(1, 36, 6, 5), kind="max", **windows), 0.03, 117)
    mean = q.op(Pool2d, x, shape=(1, 36, 6, 5), kind="avg", **windows)
    return [most, q.bytes(q.unary(mean), 0.0113, 30), q.bytes(q.conv(most, 20, 3), 0.03, 101)]


@case
def maxima_of_another_scale(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 36, 11, 9), 0.03, 117)
    windows = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}
    most = q.op(Pool2d, x, shape=(1, 36, 6, 5), kind="max", **windows)
    signed = q.bytes(q.input(1, 20, 9, 9), 0.03, -7, "int8")
    large = q.op(Pool2d, signed, shape=(1, 20, 9, 9), kind="max", kernel=(3, 3), padding=(1, 1, 1, 1))
    behind = q.bytes(q.conv(q.bytes(most, 0.0271, 90), 16), 0.02, 110)
    return [behind, q.bytes(q.unary(large, "tanh"), 0.0079, 3, "int8")]


@case
def padding_of_whoever_reads_it(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 9, 8), 0.03, 117)
    around = {"widths": ((0, 0), (0, 0), (0, 1), (2, 1))}
    padded = q.bytes(q.op(Pad, x, shape=(1, 20, 10, 11), **around), 0.03, 117)
    made = q.op(Pad, q.unary(q.conv(x, 32)), shape=(1, 32, 10, 11), **around)
    same, valid = {"padding": (1, 1, 1, 1)}, {"padding": (0, 0, 0, 0)}
    return [
        q.bytes(q.conv(padded, 16, 3, **same), 0.02, 110),
        q.bytes(q.conv(q.bytes(made, 0.0191), 16, 3, **valid), 0.02, 110),
    ]


@case
def padding_that_is_a_step(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 9, 8), 0.03, 117)
    turned = q.op(Pad, x, shape=(1, 20, 11, 11), widths=((0, 0), (0, 0), (1, 1), (1, 2)), mode="reflect")
    signed = q.bytes(q.input(1, 20, 7), 0.03, -7, "int8")
    flat = q.op(Pad, signed, shape=(1, 24, 9), widths=((0, 0), (1, 3), (1, 1)), value=np.float32(0.03) * 5)
    return [
        q.bytes(q.conv(q.bytes(turned, 0.0271, 110), 16, 3), 0.02, 110),
        q.bytes(flat, 0.03, -7, "int8"),
    ]


@case
def means(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 36, 11, 9), 0.03, 117)
    whole = q.bytes(q.op(Reduce, x, shape=(1, 36, 1, 1), kind="mean", axes=(2, 3)), 0.0031, 101)
    flat = q.op(Reduce, x, shape=(1, 36), kind="mean", axes=(2, 3), keepdims=False)
    rows = q.bytes(q.input(1, 29, 21), 0.03, 90)
    return [
        q.bytes(q.conv(whole, 20), 0.02, 100),
        q.bytes(flat, 0.0027, 120),
        q.bytes(q.op(Reduce, rows, shape=(1, 1, 21), kind="mean", axes=(1,)), 0.0052, 130),
        q.bytes(q.op(Reduce, rows, shape=(1, 29), kind="mean", axes=(2,), keepdims=False), 0.0047, 90),
    ]


@case
def bytes_that_are_moved(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 48, 6, 8), 0.03, 117)
    y = q.bytes(q.conv(x, 32), 0.03, 117)
    joined = q.bytes(q.op(Concat, x, y, shape=(1, 80, 6, 8), axis=1), 0.03, 117)
    shuffled = q.bytes(q.op(ChannelShuffle, joined, shape=(1, 80, 6, 8), groups=4), 0.03, 117)
    part = q.bytes(q.op(Slice, shuffled, shape=(1, 30, 6, 8), axis=1, begin=20, end=50), 0.03, 117)
    turned = q.bytes(q.op(Transpose, part, shape=(1, 6, 8, 30), perm=(0, 2, 3, 1)), 0.03, 117)
    flat = q.bytes(q.op(Reshape, turned, shape=(1, 1440)), 0.03, 117)
    return [q.bytes(q.conv(part, 18, 3), 0.02, 90), flat]


@case
def bytes_of_unequal_scales_side_by_side(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 6, 8), 0.0313, 117)
    y = q.bytes(q.unary(q.conv(x, 32)), 0.0217)
    joined = q.bytes(q.op(Concat, y, x, shape=(1, 52, 6, 8), axis=1), 0.0331, 70)
    return [q.bytes(q.conv(joined, 18, 3), 0.02, 90), q.bytes(q.conv(x, 16), 0.02, 110)]


@case
def functions_of_one_byte(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 6, 8), 0.0313, 117)
    gate = q.bytes(q.unary(x, "sigmoid"), 0.0041)
    swish = q.bytes(q.op(Binary, x, gate, shape=(1, 20, 6, 8), kind="mul"), 0.0173, 18)
    three = q.b.constant(np.float32([3.1]))
    flat = q.bytes(q.input(1, 77), 0.0213, 100, "int8")
    return [
        q.bytes(q.conv(swish, 16, 3), 0.02, 110),
        q.bytes(q.unary(q.op(Binary, flat, three, shape=(1, 77), kind="mul"), "tanh"), 0.00713, -5, "int8"),
    ]


@case
def other_sizes(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 5, 4), 0.03, 117)
    near = {"mode": "nearest", "coordinates": "asymmetric", "rounding": "floor"}
    far = {"mode": "bilinear", "coordinates": "half_pixel", "rounding": "round_prefer_floor"}
    nearest = q.bytes(q.op(Resize, x, shape=(1, 20, 10, 8), **near), 0.03, 117)
    other = q.bytes(q.op(Resize, x, shape=(1, 20, 11, 9), **near), 0.0271, 100)
    return [
        nearest,
        q.bytes(q.conv(other, 16), 0.02, 110),
        q.bytes(q.op(Resize, x, shape=(1, 20, 9, 7), **far), 0.0271, 120),
    ]


def asked(name: str) -> list[Asked]:
    q = Quantised()
    return each_way(q.graph(*CASES[name](q)), ways_in_turn(CASES, name))


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("name", CASES)
def test_bytes_agree_with_exact_evaluation(name: str, regions: list[LoadedRegion]) -> None:
    q = Quantised()
    graph = q.graph(*CASES[name](q))
    agree(graph, q.numbers(), regions=regions)


@pytest.mark.parametrize(
    "name",
    [
        "pools", "maxima_of_another_scale", "padding_of_whoever_reads_it", "padding_that_is_a_step",
        "means", "bytes_that_are_moved", "bytes_of_unequal_scales_side_by_side", "functions_of_one_byte",
        "other_sizes", "what_is_added_to_is_rounded_before",
    ],
)  # fmt: skip
def test_what_is_between_bytes_stays_in_bytes(name: str) -> None:
    q = Quantised()
    graph, report = q.graph(*CASES[name](q)), Report()
    backend.generate(graph, "region", VNNI, Options(threads=1), report)
    (region,) = report.regions
    floats = [
        op for op, detail in zip(region.ops, region.details, strict=True) if detail.dtype == "float32"
    ]
    assert set(floats) <= {"dequantize", "unpack"}
    assert floats.count("dequantize") == len(graph.outputs)


@pytest.mark.slow
def test_bytes_are_made_as_they_are_packed_and_by_a_step_for_who_reads_them_as_they_lie() -> None:
    q = Quantised()
    image, x = (q.bytes(q.input(1, channels, 9, 7), 0.03, 117) for channels in (3, 21))
    y = q.bytes(q.add(q.conv(image, 16, 3), q.conv(x, 16, 3)), 0.03, 110)
    graph = q.graph(y, x)
    report = Report()
    backend.generate(graph, "region", VNNI, Options(threads=1), report)
    (region,) = report.regions
    packed = [text for op, text in zip(region.ops, region.steps, strict=True) if op == "pack"]
    assert sorted("quantised" in text for text in packed) == [False, True]
    assert region.ops.count("quantize") == 1
    agree(graph, q.numbers())


# Which convolutions multiply bytes -----------------------------------------------------------------


def precisions(graph: Graph, target: Target = VNNI) -> list[str]:
    """What each convolution multiplies, in running order."""
    report = Report()
    backend.generate(graph, "region", target, Options(threads=1), report)
    (region,) = report.regions
    steps = zip(region.ops, region.details, strict=True)
    return [detail.precision for op, detail in steps if op == "conv2d"]


def layer(q: Quantised) -> str:
    return q.bytes(q.conv(q.bytes(q.input(1, 32, 12, 12), 0.03, 117), 32, 3), 0.02, 100)


def test_a_quantised_convolution_multiplies_bytes() -> None:
    q = Quantised()
    assert precisions(q.graph(layer(q))) == ["int8"]


def test_sums_that_nobody_quantises_leave_as_floats() -> None:
    q = Quantised()
    graph = q.graph(q.conv(q.bytes(q.input(1, 32, 12, 12), 0.03, 117), 32, 3))
    assert precisions(graph) == ["int8"]


def test_data_or_weights_that_are_floats_are_multiplied_as_such() -> None:
    q = Quantised()
    floats = q.conv(q.input(1, 32, 12, 12), 32, 3)
    weight = q.b.constant(q.random.standard_normal((32, 32, 1, 1)).astype(np.float32))
    x = q.bytes(q.input(1, 32, 12, 12), 0.03, 117)
    other = q.b.node(Conv2d, (x, weight), q.b.shape_of(x))
    assert precisions(q.graph(floats, other)) == ["float32", "float32"]


def test_a_scale_for_each_channel_of_the_data_has_no_kernel() -> None:
    q = Quantised()
    x = q.input(1, 32, 12, 12)
    scale, zero = np.linspace(0.01, 0.05, 32, dtype=np.float32), np.full(32, 7, np.uint8)
    x = q.b.dequantize(q.b.quantize(x, scale, zero, 1), scale, zero, 1)
    assert precisions(q.graph(q.conv(x, 32, 3))) == ["float32"]


def test_weights_whose_steps_no_byte_holds_have_no_kernel_in_groups() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 32, 12, 12), 0.03, 117)
    assert precisions(q.graph(q.conv(x, 32, 3, zero=-40, groups=2))) == ["float32"]
    assert precisions(q.graph(q.conv(x, 32, 3, zero=-40))) == ["int8"]


def test_sums_that_int32_might_not_hold_have_no_kernel() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 1 << 12, 3, 3), 0.03, 117)
    assert "int8" not in precisions(q.graph(q.conv(x, 16, 3)))


def test_a_tensor_that_is_read_as_floats_too_is_dequantised_for_that_reader() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 32, 12, 12), 0.03, 117)
    report = Report()
    graph = q.graph(q.bytes(q.conv(x, 32, 3), 0.02, 100), q.unary(x, "tanh"))
    backend.generate(graph, "region", VNNI, Options(threads=1), report)
    (region,) = report.regions
    assert region.ops.count("conv2d") == 1
    assert precisions(graph) == ["int8"]


def test_floats_win_where_no_instruction_multiplies_bytes() -> None:
    # products of 16 bits are estimated to take longer than Winograd's algorithm with conversions
    q = Quantised()
    x = q.bytes(q.input(1, 64, 56, 56), 0.03, 117)
    graph = q.graph(q.bytes(q.conv(x, 64, 3), 0.02, 100))
    assert precisions(graph) == ["int8"]
    slow = replace(VNNI, features=VNNI.features - {"avx512vnni"})
    assert precisions(graph, slow) == ["float32"]
    report = Report()
    backend.generate(graph, "region", slow, Options(threads=1), report)
    (refused,) = [d for d in report.decisions if "direct int8" in d.reason]
    assert refused.choice == "winograd F(4x4, 3x3) with conversions"
