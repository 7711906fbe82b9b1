"""Maps of few channels, made in blocks, that a convolution of many taps reads as planes."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy.backend import load
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.reference import run
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import host


def chain(
    channels: int, kernel: tuple[int, int], stride: tuple[int, int] = (1, 1)
) -> tuple[Builder, Graph]:
    """A 1x1 convolution to so many channels, then a large one of them."""
    b = Builder([1, 24, 9, 40])
    few = b.add(Conv2d, "x0", b.weight(channels, 24, 1, 1), b.weight(channels))
    top, left = kernel[0] // 2, kernel[1] // 2
    y = b.add(
        Conv2d, few, b.weight(5, channels, *kernel), b.weight(5), stride=stride,
        padding=(top, left, top, left),
    )  # fmt: skip
    return b, b.graph(y)


def algorithm(graph: Graph) -> str:
    plan = make_plan(graph, host(), Options(accuracy="direct"))
    return [step.algorithm for step in plan.steps if isinstance(step, DirectConv)][-1]


@pytest.mark.parametrize(
    ("channels", "kernel", "stride"), [(1, (1, 256), (1, 2)), (1, (7, 7), (2, 3)), (2, (9, 8), (1, 1))]
)
def test_many_taps_read_planes(channels: int, kernel: tuple[int, int], stride: tuple[int, int]) -> None:
    b, graph = chain(channels, kernel, stride)
    assert algorithm(graph) == "direct, planar"
    arrays = b.arrays()
    (got,) = load(graph)(*arrays)
    (want,) = run(graph, arrays)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("channels", "kernel"), [(1, (3, 3)), (16, (9, 9))])
def test_few_taps_and_full_blocks_read_the_map_as_it_is(channels: int, kernel: tuple[int, int]) -> None:
    assert algorithm(chain(channels, kernel)[1]) == "direct"
