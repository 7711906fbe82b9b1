"""Transposed convolutions of bytes: phases that begin at what the zero point takes away of their taps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from quantising import Cases, Quantised, agree, each_way, ways_in_turn
from together import Asked

VNNI = MACHINES["znver4"]

case = CASES = Cases()


@case
def windows_that_do_not_overlap(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 36, 5, 7), 0.03, 117)
    y = q.bytes(q.unary(q.conv_transpose(x, 40, 2, shape=(10, 14), stride=(2, 2))), 0.03)
    return [q.bytes(q.conv(y, 17, 3), 0.02, 100)]


@case
def phases_of_unequal_taps_and_padding(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 21, 6, 5), 0.03, 131)
    shapes = {"padding": (1, 1, 1, 1), "stride": (2, 2), "output_padding": (1, 1)}
    wide = q.conv_transpose(x, 33, 5, shape=(12, 10), stride=(2, 2), padding=(2, 1, 1, 2))
    return [
        q.bytes(q.conv_transpose(x, 24, 3, shape=(12, 10), **shapes), 0.02, 90),
        q.bytes(wide, 0.03, 114),
        q.bytes(q.conv_transpose(x, 18, 4, shape=(17, 14), stride=(3, 3), padding=(1, 1, 1, 1)), 0.02, 100),
    ]


@case
def pixels_that_no_tap_reaches(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 6, 5), 0.03, 120)
    return [q.bytes(q.conv_transpose(x, 24, 1, shape=(11, 9), stride=(2, 2)), 0.02, 90)]


@case
def dilation_and_no_stride(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 20, 6, 5), 0.03, 120)
    apart = q.conv_transpose(x, 24, 3, shape=(15, 13), stride=(2, 2), dilation=(2, 2))
    return [q.bytes(apart, 0.02, 90), q.bytes(q.conv_transpose(x, 24, 3, shape=(8, 7)), 0.02, 90)]


@case
def groups(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 5, 6), 0.03, 117)
    return [
        q.bytes(q.conv_transpose(x, 64, 3, shape=(11, 13), stride=(2, 2), groups=2), 0.02, 121),
        q.bytes(q.conv_transpose(x, 32, 2, shape=(10, 12), stride=(2, 2), groups=32), 0.02, 130),
    ]


@case
def residuals(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 5, 6), 0.03, 117)
    y = q.bytes(q.conv(q.bytes(q.input(1, 8, 10, 12), 0.03, 110), 24), 0.04, 90)
    up = q.conv_transpose(x, 24, 4, shape=(10, 12), stride=(2, 2), padding=(1, 1, 1, 1))
    held = q.bytes(q.conv_transpose(x, 24, 2, shape=(10, 12), stride=(2, 2)), 0.0613, 111)
    return [
        q.bytes(q.unary(q.add(up, y)), 0.02),
        q.bytes(q.unary(q.add(held, y), "clip", a=-1.0, b=2.5), 0.0371, 99),
    ]


@case
def an_activation_that_is_no_clamp_and_signed_bytes(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 5, 6), 0.03, -12, "int8")
    y = q.unary(q.conv_transpose(x, 24, 2, shape=(10, 12), stride=(2, 2)), "silu")
    return [q.bytes(y, 0.02, -100, "int8")]


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


@pytest.mark.parametrize("name", CASES)
def test_all_phases_multiply_bytes(name: str) -> None:
    q = Quantised()
    graph = q.graph(*CASES[name](q))
    assert set(precisions(graph)) == {"int8"}


def precisions(graph: Graph, target: Target = VNNI) -> list[str]:
    """What each phase multiplies, in running order."""
    report = Report()
    backend.generate(graph, "region", target, Options(threads=1), report)
    (region,) = report.regions
    steps = zip(region.ops, region.details, strict=True)
    return [detail.precision for op, detail in steps if op == "conv_transpose2d"]


def layer(q: Quantised) -> Graph:
    x = q.bytes(q.input(1, 32, 12, 12), 0.03, 117)
    return q.graph(q.bytes(q.conv_transpose(x, 32, 2, shape=(24, 24), stride=(2, 2)), 0.02, 100))


def test_sums_that_nobody_quantises_leave_as_floats() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 32, 12, 12), 0.03, 117)
    graph = q.graph(q.conv_transpose(x, 32, 2, shape=(24, 24), stride=(2, 2)))
    assert precisions(graph) == ["int8"] * 4


def test_floats_win_where_products_of_bytes_take_longer() -> None:
    slow = replace(VNNI, features=VNNI.features - {"avx512vnni"})
    slow = replace(slow, direct=replace(slow.direct, bytes_apart=20.0))
    graph, report = layer(Quantised()), Report()
    assert precisions(graph) == ["int8"] * 4
    assert precisions(graph, slow) == ["float32"] * 4
    backend.generate(graph, "region", slow, Options(threads=1), report)
    (refused,) = [d for d in report.decisions if "direct int8" in d.reason]
    assert refused.choice == "direct with conversions"
