"""The greatest and the least of all numbers of a tensor are found in one pass."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Reduce, Unary
from convoy.graph.reference import run
from convoy.graph.sizes import Size, open_size
from convoy.kernels.planner import make_plan
from convoy.kernels.reduce import Extremes, ReduceArray, ReduceMap
from convoy.options import Options
from convoy.target import Target
from instruction_sets import HOST_SETS


def of_rows(rows: Size, columns: int = 33, kinds: tuple[str, ...] = ("max", "min")) -> Graph:
    """The extremes, and the tensor less the last of them."""
    b = Builder([1, rows, columns])
    found = [b.add(Reduce, "x0", kind=kind, axes=(1, 2)) for kind in kinds]
    return b.graph(*found, b.add(Binary, "x0", found[-1], kind="sub"))


def of_image(channels: int) -> Graph:
    b = Builder([1, channels, 9, 11])
    y = b.add(Conv2d, "x0", b.weight(channels, channels, 1, 1))
    least, most = (b.add(Reduce, y, kind=kind, axes=(1, 2, 3)) for kind in ("min", "max"))
    return b.graph(b.add(Unary, b.add(Binary, most, least, kind="sub"), kind="relu"))


def kinds_of(graph: Graph) -> list[type]:
    steps = make_plan(graph, Target("avx512"), Options(threads=2)).steps
    return [type(s) for s in steps if isinstance(s, Extremes | ReduceMap | ReduceArray)]


def test_both_are_found_in_one_pass() -> None:
    assert kinds_of(of_rows(70)) == [Extremes, ReduceArray, ReduceArray]
    assert kinds_of(of_rows(70, kinds=("min", "max"))) == [Extremes, ReduceArray, ReduceArray]
    assert kinds_of(of_image(20)) == [Extremes, ReduceArray, ReduceArray]


def test_one_alone_and_few_numbers_are_reduced_as_before() -> None:
    assert kinds_of(of_rows(70, kinds=("max",))) == [ReduceArray]
    assert kinds_of(of_rows(70, kinds=("max", "sum"))) == [ReduceArray, ReduceArray]
    assert kinds_of(of_rows(3)) == [ReduceArray, ReduceArray]
    b = Builder([1, 70, 33])
    rows, all_of_it = (
        b.add(Reduce, "x0", kind="max", axes=(1,)),
        b.add(Reduce, "x0", kind="min", axes=(1, 2)),
    )
    assert kinds_of(b.graph(rows, all_of_it)) == [ReduceArray, ReduceArray]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("isa", HOST_SETS)
def test_they_are_exact_and_nan_is_both(isa: str, threads: int) -> None:
    region = backend.load(of_rows(70), Target(isa), Options(threads=threads))
    x = np.random.default_rng(2).standard_normal((1, 70, 33)).astype(np.float32)
    for poison in (0.0, np.inf, -np.inf, np.nan):
        x[0, 41, 32] = poison
        most, least, less = region(x)
        np.testing.assert_array_equal([most.item(), least.item()], [x.max(), x.min()])
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(less, x - x.min())


def test_of_maps_and_of_open_sizes() -> None:
    target = Target(HOST_SETS[-1])
    graph = of_image(20)
    (x,) = Builder([1, 20, 9, 11], seed=4).arrays()
    (wanted,) = run(graph, [x], np.float64)
    (found,) = backend.load(graph, target, Options(threads=2))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    region = backend.load(of_rows(open_size("size[0]", 9)), target, Options(threads=2))
    for rows in (1, 40):
        x = np.random.default_rng(rows).standard_normal((1, rows, 33)).astype(np.float32)
        most, least, _ = region(x)
        assert (most.item(), least.item()) == (x.max(), x.min())
