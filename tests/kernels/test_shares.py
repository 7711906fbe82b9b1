"""What the threads of a direct convolution share: its pixels, or its output channels and their weights."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph.ops import Conv2d
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import Target
from convoy.target.machines import MACHINES


def shares_weights(in_channels: int, out_channels: int, size: int, target: Target) -> bool:
    b = Builder([1, in_channels, size, size])
    w = b.weight(out_channels, in_channels, 1, 1)
    y = b.add(Conv2d, "x0", w, b.weight(out_channels), stride=(1, 1), padding=(0, 0, 0, 0))
    plan = make_plan(b.graph(y), target, Options(threads=2))
    (step,) = (step for step in plan.steps if isinstance(step, DirectConv))
    return step.split_chunks


@pytest.mark.parametrize("target", [Target("avx512"), Target("avx2")])
def test_many_weights_and_few_pixels_are_shared_by_channels(target: Target) -> None:
    assert shares_weights(256, 1024, 14, target)  # five weights a value of x
    assert not shares_weights(64, 64, 56, target)


@pytest.mark.parametrize("target", [Target("avx512"), Target("avx2")])
def test_a_large_x_is_not_read_by_all(target: Target) -> None:
    # 1.3 weights a value of x, and enough tiles a panel to ask for the next
    assert not shares_weights(1024, 256, 14, target)


def test_too_few_tiles_to_ask_for_all_weights_are_not_shared() -> None:
    # 2.6 weights a value of x: fewer than three, but two tiles of a thread ask for half a panel
    assert shares_weights(512, 128, 7, Target("avx512"))


@pytest.mark.parametrize(("kernel", "groups", "kept"), [(3, 384, True), (1, 1, False)])
def test_what_a_depthwise_convolution_reads_is_made_by_the_threads_that_read_it(
    kernel: int, groups: int, kept: bool
) -> None:
    # 2 weights a value of x, too few by themselves; a 1x1 reads the channels of all threads
    b = Builder([1, 64, 14, 14])
    x = b.add(Conv2d, "x0", b.weight(384, 64, 1, 1), b.weight(384), stride=(1, 1), padding=(0, 0, 0, 0))
    w = b.weight(384, 384 // groups, kernel, kernel)
    y = b.add(Conv2d, x, w, b.weight(384), stride=(1, 1), padding=(kernel // 2,) * 4, groups=groups)
    plan = make_plan(b.graph(y), MACHINES["znver3"], Options(threads=2))
    first = next(step for step in plan.steps if isinstance(step, DirectConv))
    assert first.split_chunks == kept
