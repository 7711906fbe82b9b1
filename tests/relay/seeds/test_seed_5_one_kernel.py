"""Seed 5: conv2d and relu in one kernel, and conv2d → conv2d computed strip by strip where it pays."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay

import convoy.relay
from convoy.graph.rewrite import simplify
from convoy.kernels.planner import make_plan
from convoy.kernels.strips.strips import Strips
from convoy.options import Options
from convoy.plan.step import Step
from convoy.report.decision import Report
from convoy.target import Target
from relay.relay_modules import Cut, Make, module, random, run, run_plain, weight

nn = relay.nn


def conv(x: relay.Expr, inputs: int, outputs: int, kernel: int = 1, groups: int = 1) -> relay.Expr:
    return nn.conv2d(
        x,
        weight(outputs, inputs // groups, kernel, kernel),
        padding=(kernel // 2, kernel // 2),
        channels=outputs,
        kernel_size=(kernel, kernel),
        groups=groups,
    )


def test_conv_relu_is_one_kernel() -> None:
    # the relu is applied to the registers of the convolution before they are stored: no compute_at to write
    before = module(lambda x: nn.relu(conv(x, 8, 16, 3)), (1, 8, 16, 16))
    report = Report()
    with convoy.relay.using(report=report):
        library = relay.build(before, target="convoy")
    (region,) = report.regions
    (kernel,) = [step for step in region.steps if "conv2d" in step or "relu" in step]
    assert kernel.startswith("conv2d")
    assert "relu" in kernel
    image = random(1, 8, 16, 16)
    (got,), (want,) = run(library, image), run_plain(before, image)
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def plan(make: Make, *shape: int) -> list[Step]:
    """The steps planned for a machine with AVX-512 and 1 MB of L2."""
    cut = Cut(make, shape)
    return list(make_plan(simplify(cut.graph), Target("avx512"), Options(threads=1)).steps)


def bottleneck(channels: int, wide: int) -> Make:
    """A convolution that widens, one per channel, one that narrows, as in MobileNetV2."""

    def make(x: relay.Expr) -> relay.Expr:
        x = nn.relu(conv(x, channels, channels))
        y = nn.relu(conv(x, channels, wide))
        y = nn.relu(conv(y, wide, wide, 3, groups=wide))
        return conv(y, wide, channels) + x

    return make


def test_large_pairs_run_strip_by_strip() -> None:
    # what passes between the convolutions is 7 MB: a few rows at a time, it stays in L2
    strips = [step for step in plan(bottleneck(24, 144), 1, 24, 112, 112) if isinstance(step, Strips)]
    assert max(len(step.members) for step in strips) >= 2


def test_small_pairs_do_not() -> None:
    # all of it fits L2
    assert not any(isinstance(step, Strips) for step in plan(bottleneck(160, 960), 1, 160, 7, 7))


@pytest.mark.parametrize("size", [16, 20])
def test_the_pair_is_right(size: int) -> None:
    before = module(bottleneck(24, 144), (1, 24, size, size))
    image = random(1, 24, size, size)
    with tvm.transform.PassContext(opt_level=3):
        (got,) = run(relay.build(before, target="convoy"), image)
    (want,) = run_plain(before, image)
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
