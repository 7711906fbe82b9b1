"""Pipelined tiles of 1x1 convolutions of bytes: what they compute is right, and which steps have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.ops import ConvTranspose2d
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from quantising import Cases, Quantised, agree, each_way, ways_in_turn
from together import Asked

ZEN4 = MACHINES["znver4"]

case = CASES = Cases()


@case
def every_number_of_blocks(q: Quantised) -> list[str]:
    outs = []
    for blocks, channels in enumerate((13, 17, 48, 64, 65), 1):
        x = q.bytes(q.input(1, 16 * blocks - 3, 7, 9), 0.03, 100 + blocks)
        outs.append(q.bytes(q.conv(x, channels), 0.02, 90))
    return outs


@case
def rows_that_lie_apart(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 48, 5, 27), 0.03, 117)
    y = q.bytes(q.unary(q.conv(x, 32)), 0.02)
    return [q.bytes(q.conv(y, 16, 3), 0.02, 100)]


@case
def every_second_pixel(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 70, 9, 45), 0.03, 117)
    return [q.bytes(q.conv(x, 40, stride=(2, 2)), 0.02, 100)]


@case
def residuals_of_another_scale(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 6, 9), 0.03, 128)
    y = q.bytes(q.conv(x, 50), 0.04, 90)
    return [q.bytes(q.unary(q.add(q.conv(x, 50), y)), 0.02)]


@case
def what_is_added_to_is_rounded_before(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 80, 6, 9), 0.03, 100)
    y = q.bytes(q.conv(x, 96), 0.05, 121)
    z = q.unary(q.add(q.bytes(q.conv(x, 96), 0.0613, 111), y), "clip", a=-1.0, b=2.5)
    return [q.bytes(z, 0.0371, 99)]


@case
def phases_that_are_whole_rows(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 48, 3, 27), 0.03, 117)

    def widened() -> str:
        w = q.random.integers(-127, 128, (48, 80, 3, 1)).astype(np.int8)
        scale = np.full(80, 1 / 127 / np.sqrt(48), np.float32)
        weight = q.b.dequantize(q.b.constant(w), scale, np.zeros(80, np.int8), 1)
        return q.b.node(ConvTranspose2d, (x, weight), (1, 80, 9, 27), stride=(3, 1))

    y = q.bytes(widened(), 0.03, 99)
    return [q.bytes(q.unary(q.add(widened(), y)), 0.03, 20), q.bytes(q.conv(y, 24, 3), 0.02, 120)]


@case
def threads_that_share_output_channels(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 256, 1, 33), 0.03, 117)
    return [q.bytes(q.conv(x, 272), 0.02, 100)]


def asked(name: str) -> list[Asked]:
    q = Quantised()
    targets = [replace(target, adds_apart=True) for target in ways_in_turn(CASES, name)]
    return each_way(q.graph(*CASES[name](q)), targets)


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("name", CASES)
def test_bytes_agree_with_exact_evaluation(name: str, regions: list[LoadedRegion]) -> None:
    q = Quantised()
    graph = q.graph(*CASES[name](q))
    assert any(pipelined(graph))
    agree(graph, q.numbers(), regions=regions)


# Which steps have them ---------------------------------------------------------------------------


def pipelined(graph: Graph, target: Target = ZEN4) -> list[bool]:
    """Of each convolution, in running order, whether its tiles are pipelined."""
    report = Report()
    backend.generate(graph, "region", target, Options(threads=1), report)
    (region,) = report.regions
    texts = zip(region.ops, region.steps, strict=True)
    return ["pipelined tiles" in text for op, text in texts if op.startswith("conv")]


def layer(q: Quantised, *size: int, kernel: int = 1) -> str:
    return q.conv(q.bytes(q.input(1, 32, *size), 0.03, 117), 32, kernel)


def test_a_pointwise_convolution_that_makes_bytes_of_bytes_has_them() -> None:
    q = Quantised()
    assert pipelined(q.graph(q.bytes(layer(q, 12, 12), 0.02, 100))) == [True]


def test_sums_that_stay_floats_or_become_bytes_by_more_than_a_clamp_have_none() -> None:
    q = Quantised()
    sigmoid = q.bytes(q.unary(layer(q, 12, 12), "sigmoid"), 0.005)
    assert pipelined(q.graph(layer(q, 12, 12), sigmoid)) == [False, False]


def test_other_kernels_and_rows_of_two_tiles_have_none() -> None:
    q = Quantised()
    few = q.bytes(layer(q, 2, 7), 0.02, 100)  # a row of 14 pixels
    assert pipelined(q.graph(q.bytes(layer(q, 12, 12, kernel=3), 0.02, 100), few)) == [False, False]


@pytest.mark.parametrize(
    "target",
    [
        MACHINES["haswell"], replace(MACHINES["sapphirerapids"], adds_apart=True),
        MACHINES["icelake-server"],
        replace(ZEN4, features=ZEN4.features - {"avx512vnni"}),
    ],
    ids=["16 registers", "AMX", "sums and products in the same units", "no product of bytes"],
)  # fmt: skip
def test_a_machine_that_has_no_room_or_computes_otherwise_has_none(target: Target) -> None:
    q = Quantised()
    assert pipelined(q.graph(q.bytes(layer(q, 12, 12), 0.02, 100)), target) == [False]
