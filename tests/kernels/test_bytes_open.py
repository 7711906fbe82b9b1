"""Kernels of bytes whose sizes are known at the call, at many of them, beside exact evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.least import settle_least
from convoy.graph.ops import Binary, Concat, Pad, Pool2d, Reduce, Resize, Slice
from convoy.graph.sizes import open_size
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import InstructionSet, Target
from instruction_sets import HOST_SETS
from kernels.test_bytes import VNNI
from kernels.test_bytes_winograd import convolutions
from kernels.test_bytes_winograd_exact import of_integers
from quantising import Cases, Quantised, bytes_targets, hold_to_exact
from together import Asked

case = CASES = Cases()
SIZES = ((24, 24), (1, 1), (2, 3), (13, 7), (5, 64))


def image(q: Quantised, channels: int) -> str:
    return q.input(1, channels, open_size("size[0]", 24), open_size("size[1]", 24))


@case
def a_classifier(q: Quantised) -> list[str]:
    x = q.bytes(q.unary(q.conv(q.bytes(image(q, 3), 0.03, 114), 24, 5, stride=(2, 2))), 0.02)
    *_, height, width = q.b.shape_of(x)
    window = {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1, 1, 1)}
    shape = (1, 24, (height - 1) // 2 + 1, (width - 1) // 2 + 1)
    x = q.bytes(q.op(Pool2d, x, shape=shape, kind="max", **window), 0.02)
    y = q.bytes(q.conv(q.bytes(q.unary(q.conv(x, 32, 3)), 0.02), 24), 0.03, 120)
    x = q.bytes(q.unary(q.add(y, x)), 0.02)
    y = q.bytes(q.op(Reduce, x, shape=(1, 24), kind="mean", axes=(2, 3), keepdims=False), 0.007)
    return [x, q.bytes(q.dense(y, 20), 0.01, 120)]


@case
def branches(q: Quantised) -> list[str]:
    x = q.bytes(q.conv(q.bytes(image(q, 3), 0.03, 114), 32), 0.03, 117)
    each = [q.conv(x, 32, 3, groups=32), q.conv(x, 40, 3, dilation=(2, 2)), q.conv(x, 32, 3, groups=2)]
    parts = [q.bytes(part, 0.02 + 0.003 * i, 110) for i, part in enumerate(each)]
    joined = q.op(Concat, *parts, shape=(1, 104, *q.b.shape_of(x)[2:]), axis=1)
    y = q.bytes(joined, 0.0331, 120)
    z = q.bytes(q.conv(y, 104, 5, groups=104, stride=(2, 2)), 0.02, 117)
    return [
        q.bytes(q.conv(z, 20, 3, stride=(2, 2)), 0.02, 110),
        q.bytes(q.conv(y, 16, 3, groups=4), 0.02, 117),
    ]


@case
def what_lies_between(q: Quantised) -> list[str]:
    x = q.bytes(q.conv(q.bytes(image(q, 3), 0.03, 114), 20), 0.03, 117)
    *_, height, width = q.b.shape_of(x)
    swish = q.bytes(
        q.op(Binary, x, q.bytes(q.unary(x, "sigmoid"), 0.0041), shape=q.b.shape_of(x), kind="mul"),
        0.0173,
        18,
    )
    near = {"mode": "nearest", "coordinates": "asymmetric", "rounding": "floor"}
    far = {"mode": "bilinear", "coordinates": "half_pixel", "rounding": "round_prefer_floor"}
    larger = (1, 20, 2 * height, 2 * width)
    nearest = q.bytes(q.op(Resize, swish, shape=larger, **near), 0.0231, 40)
    between = q.bytes(q.op(Resize, x, shape=larger, **far), 0.0271, 120)
    both = q.bytes(q.unary(q.op(Binary, nearest, between, shape=larger, kind="add")), 0.031)
    up = q.conv_transpose(both, 16, 4, shape=(4 * height, 4 * width), stride=(2, 2), padding=(1, 1, 1, 1))
    around = {"widths": ((0, 0), (0, 0), (0, 1), (2, 1))}
    padded = q.bytes(q.op(Pad, both, shape=(1, 20, 2 * height + 1, 2 * width + 3), **around), 0.031)
    part = q.bytes(
        q.op(Slice, padded, shape=(1, 8, 2 * height + 1, 2 * width + 3), axis=1, begin=3, end=11), 0.031
    )
    return [q.bytes(up, 0.02, 100), q.bytes(q.conv(part, 16, 3), 0.02, 110)]


@case
def winograd(q: Quantised) -> list[str]:
    x = q.bytes(q.conv(q.bytes(image(q, 3), 0.03, 114), 32), 0.03, 117)
    y = q.bytes(q.unary(q.conv(x, 40, 3)), 0.02)
    return [
        q.bytes(q.unary(q.add(q.conv(y, 32, 3), x)), 0.02),
        q.bytes(q.conv(y, 19, 3, bias=False), 0.02, 9),
    ]


def make(name: str) -> Graph:
    q = Quantised()
    return settle_least(q.graph(*CASES[name](q)))


def hold(graph: Graph, regions: Sequence[LoadedRegion]) -> None:
    """Every region of it to one answer at each size, and that to exact evaluation."""
    for sizes in SIZES:
        bound = graph.bound({at.symbol: n for at, n in zip(graph.open_axes, sizes, strict=True)})
        random = np.random.default_rng(sum(sizes))
        arrays = [random.standard_normal(bound.shape(name)).astype(np.float32) for name in bound.inputs]
        first, *others = ([*region(*arrays)] for region in regions)
        for other in others:
            for one, two in zip(first, other, strict=True):
                np.testing.assert_array_equal(one, two)
        hold_to_exact(bound, first, arrays, off=0.1)  # an output has 20 bytes


@pytest.mark.parametrize("name", CASES)
def test_all_between_the_first_and_the_last_is_bytes(name: str) -> None:
    graph, report = make(name), Report()
    backend.generate(graph, "region", VNNI, Options(threads=1), report)
    (region,) = report.regions
    steps = zip(region.ops, region.details, strict=True)
    floats = [op for op, detail in steps if detail.dtype == "float32"]
    assert set(floats) <= {"dequantize", "unpack"}
    assert floats.count("dequantize") == len(graph.outputs)


def asked(name: str) -> list[Asked]:
    first, *_, best = bytes_targets()  # other instruction sets: ``test_bytes.py``
    graph = make(name)
    return [Asked(graph, first, Options(threads=3)), Asked(graph, best, Options(threads=1))]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("name", CASES)
def test_one_region_runs_every_size(name: str, regions: list[LoadedRegion]) -> None:
    hold(make(name), regions)


def winograd_target(kind: str, isa: InstructionSet) -> Target:
    if kind == "of floats":
        return replace(Target(isa), direct=replace(Target(isa).direct, bytes_apart=50.0))
    return of_integers(isa)


def asked_of_winograd(kind: str, isa: InstructionSet) -> list[Asked]:
    return [Asked(make("winograd"), winograd_target(kind, isa), Options(threads=2))]


@pytest.mark.slow
@pytest.mark.together(of=asked_of_winograd)
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize("kind", ["int16", "of floats"])
def test_winograd_gives_the_bytes_of_exact_evaluation(
    kind: str, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    target = winograd_target(kind, isa)
    graph = make("winograd")
    of_bytes = [way for dtype, _, way in convolutions(graph, target) if dtype == "uint8" and "wino" in way]
    assert len(of_bytes) == 3
    assert all(("int16" in way) == (kind == "int16") for way in of_bytes)
    hold(graph, regions)
