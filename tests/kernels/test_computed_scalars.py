"""A number that a run computes of a map, and a map that is computed with it, stay in blocks."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Reduce, Unary
from convoy.graph.reference import run
from convoy.graph.sizes import Size, open_size
from convoy.kernels.elementwise import ElementwiseMap
from convoy.kernels.layout import Unpack
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import Target
from instruction_sets import HOST_SETS
from pairs import pairs


def scaled_by_its_range(channels: int = 20, width: Size = 9) -> Graph:
    """conv(relu(y / (max(y) - min(y)))), of a convolution's y."""
    b = Builder([1, channels, 7, width])
    y = b.add(Conv2d, "x0", b.weight(channels, channels, 1, 1))
    high, low = (b.add(Reduce, y, kind=kind, axes=(1, 2, 3)) for kind in ("max", "min"))
    y = b.add(Binary, y, b.add(Binary, high, low, kind="sub"), kind="div")
    return b.graph(b.add(Conv2d, b.add(Unary, y, kind="relu"), b.weight(8, channels, 1, 1)))


def test_nothing_leaves_its_blocks_between_two_convolutions() -> None:
    steps = make_plan(scaled_by_its_range(), Target("avx512"), Options(threads=1)).steps
    kinds = [type(step) for step in steps]
    assert ElementwiseMap in kinds
    assert kinds.count(Unpack) == 1  # the result


@pytest.mark.parametrize(("isa", "channels", "threads"), pairs(HOST_SETS, [1, 3, 20, 64], [1, 2]))
def test_they_agree_with_exact_evaluation(isa: str, channels: int, threads: int) -> None:
    graph = scaled_by_its_range(channels)
    x = np.random.default_rng(1).standard_normal((1, channels, 7, 9)).astype(np.float32) - 9
    (wanted,) = run(graph, [x], np.float64)
    (found,) = backend.load(graph, Target(isa), Options(threads=threads))(x)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("isa", HOST_SETS)
def test_of_widths_that_a_call_knows(isa: str) -> None:
    graph = scaled_by_its_range(width=open_size("size[0]", 16))
    region = backend.load(graph, Target(isa), Options())
    for width in (1, 5, 40):
        x = np.random.default_rng(width).standard_normal((1, 20, 7, width)).astype(np.float32)
        (wanted,) = run(graph.bound({axis.symbol: width for axis in graph.open_axes}), [x], np.float64)
        np.testing.assert_allclose(region(x)[0], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
def test_nan_is_the_largest_and_the_least() -> None:
    graph = scaled_by_its_range()
    x = np.ones((1, 20, 7, 9), np.float32)
    x[0, 3, 2, 1] = np.nan
    assert np.isnan(backend.load(graph, Target(HOST_SETS[-1]), Options())(x)[0]).all()
