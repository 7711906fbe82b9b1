"""Winograd convolutions in floats whose tiles are made of bytes and make bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.reference import run
from convoy.options import Accuracy, Options
from convoy.report.decision import Report
from convoy.target import InstructionSet, Target
from convoy.target.kernels import WinogradCosts
from instruction_sets import HOST_SETS, in_turn
from quantising import Cases, Quantised, each_way, on_any_threads, unit_of
from together import Asked

case = CASES = Cases()


@case
def tiles_that_are_cut_off(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 21, 23), 0.03, 117)
    return [q.bytes(q.unary(q.conv(x, 42, 3)), 0.02)]


@case
def no_halo_to_hold_the_zero_point(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 18, 22), 0.03, 117)
    return [q.bytes(q.conv(x, 40, 3, padding=(0, 0, 0, 0)), 0.02, 121)]


@case
def dilation(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 20, 21), 0.03, 117)
    return [q.bytes(q.conv(x, 40, 3, dilation=(2, 2)), 0.02, 121)]


@case
def few_tiles_of_streamed_weights(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 256, 7, 8), 0.03, 117)
    return [q.bytes(q.conv(x, 256, 3), 0.02, 121)]


@case
def a_residual_of_another_scale(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 20, 21), 0.03, 117)
    y = q.bytes(q.conv(x, 32, 3), 0.03, 100)
    return [q.bytes(q.unary(q.add(q.conv(y, 32, 3), x)), 0.02)]


@case
def what_is_added_to_is_rounded_before(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 20, 21), 0.03, 117)
    return [q.bytes(q.add(q.bytes(q.conv(x, 32, 3), 0.0613, 111), x), 0.0371, 99)]


@case
def activations_that_are_no_clamps(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 20, 21), 0.03, 117)
    return [q.bytes(q.unary(q.conv(x, 40, 3), "silu"), 0.02, 30)]


@case
def signed_bytes(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 20, 21), 0.03, -12, "int8")
    return [q.bytes(q.conv(x, 40, 3), 0.02, 5, "int8")]


def targets(sets: Iterable[InstructionSet] = HOST_SETS) -> list[Target]:
    """Those of this machine, on which products of bytes take long."""
    found = [Target(isa) for isa in sets]
    return [replace(t, direct=replace(t.direct, bytes_apart=50.0)) for t in found]


def targets_of(name: str) -> list[Target]:
    """For a case: the widest, and one other by turns."""
    return targets(isa for case, isa in in_turn(CASES) if case == name)


def convolutions(graph: Graph, target: Target, accuracy: Accuracy = "fast") -> list[tuple[str, str, str]]:
    """Of each step of a convolution the type of its result, what it multiplies, and its algorithm."""
    report = Report()
    backend.generate(graph, "region", target, Options(threads=1, accuracy=accuracy), report)
    (region,) = report.regions
    steps = zip(region.ops, region.details, region.kinds, strict=True)
    return [(detail.dtype, detail.precision, kind) for op, detail, kind in steps if op == "conv2d"]


def asked(name: str) -> list[Asked]:
    q = Quantised()
    return each_way(q.graph(*CASES[name](q)), targets_of(name))


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("name", CASES)
def test_bytes_agree_with_exact_evaluation(name: str, regions: list[LoadedRegion]) -> None:
    q = Quantised()
    graph = q.graph(*CASES[name](q))
    arrays = q.numbers()
    (want,) = run(graph, arrays, np.float64)
    unit = unit_of(graph.outputs[0], graph)
    assert want.std() > 5 * unit, "the example shows nothing"
    for target, region in zip(targets_of(name), regions, strict=True):
        (got,) = on_any_threads(region, arrays)
        steps = np.abs(got - want) / unit
        assert steps.max() < 1.001, f"{target.isa}: {steps.max():.2f} units"
        assert (steps > 0.5).mean() <= 0.002, f"{target.isa}: {(steps > 0.5).mean():.2%} are off by one"


@pytest.mark.parametrize("name", CASES)
def test_tiles_are_of_bytes(name: str) -> None:
    q = Quantised()
    graph = q.graph(*CASES[name](q))
    for target in targets():
        for dtype, precision, kind in convolutions(graph, target):
            assert (dtype, precision) == ("uint8", "float32")
            assert "winograd" in kind


@pytest.mark.slow
def test_bytes_are_made_by_no_tiles_that_round_more() -> None:
    q = Quantised()
    graph = q.graph(q.bytes(q.conv(q.bytes(q.input(1, 48, 128, 128), 0.03, 117), 48, 3), 0.02, 121))
    for target in targets():
        ((*_, kind),) = convolutions(graph, replace(target, winograd=WinogradCosts()), "fastest")
        assert kind.startswith("winograd F(4x4, 3x3)")


@pytest.mark.slow
def test_what_is_not_finite_is_computed_again_and_stays_in_its_pixels() -> None:
    # an infinite weight makes an infinity of a step, and NaN of none: the largest and the least byte
    q = Quantised()
    x = q.bytes(q.input(1, 32, 20, 21), 0.03, 117)
    w = q.random.standard_normal((40, 32, 3, 3)).astype(np.float32) / 17
    w[5, 3, 1, 2] = np.inf
    y = q.b.node(Conv2d, (x, q.b.constant(w)), (1, 40, 20, 21), padding=(1, 1, 1, 1))
    graph = q.graph(q.bytes(y, 0.02, 120))
    arrays = q.numbers()
    arrays[0][0, 3] = np.where(np.arange(21) % 7 == 0, 0.0, arrays[0][0, 3])
    with np.errstate(invalid="ignore"):
        (want,) = run(graph, arrays, np.float64)
    for target in targets():
        assert all("winograd" in kind for *_, kind in convolutions(graph, target))
        (got,) = on_any_threads(backend.load(graph, target), arrays)
        assert np.abs(got - want).max() < 0.0201
