"""A region emitted with its steps timed computes the same, and knows what each step took."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Pool2d, Unary
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import host


def network() -> Graph:
    b = Builder([1, 16, 24, 24])
    x = b.add(Unary, b.add(Conv2d, "x0", b.weight(64, 16, 1, 1), b.weight(64)), kind="relu")
    x = b.add(Conv2d, x, b.weight(64, 64, 3, 3), padding=(1, 1, 1, 1))
    return b.graph(b.add(Pool2d, x, kind="max", kernel=(2, 2), stride=(2, 2)))


@pytest.mark.slow
def test_a_timed_region_gives_the_same_bits_and_a_time_for_each_step() -> None:
    graph, (x,) = network(), Builder([1, 16, 24, 24]).arrays()
    plain = backend.load(graph, options=Options(threads=2))
    timed = backend.load(graph, options=Options(threads=2), timed=True)
    assert timed.step_seconds() == [0.0] * len(timed.code.report.steps)
    first = timed(x)[0]
    once = timed.step_seconds()
    assert all(0 < s < 1 for s in once)
    np.testing.assert_array_equal(first, plain(x)[0])
    for _ in range(5):
        timed(x)
    assert all(now <= before for now, before in zip(timed.step_seconds(), once, strict=True))


def test_every_step_has_an_estimate_and_a_convolution_that_of_its_algorithm() -> None:
    report = Report()
    plan = make_plan(network(), host(), Options(threads=2, accuracy="direct"), report)
    assert len(plan.cycles) == len(plan.steps)
    assert all(cycles > 0 for cycles in plan.cycles)
    reasons = [d.reason for d in report.decisions]
    steps = zip(plan.steps, plan.cycles, strict=True)
    convolutions = [cycles for step, cycles in steps if isinstance(step, DirectConv)]
    # what else was compared follows: tap by tap, where the machine's figures say so
    found = [reason.partition(", tap by tap")[0] for reason in reasons]
    assert [f"estimated kilocycles: direct {cycles / 1e3:.0f}" for cycles in convolutions] == found
