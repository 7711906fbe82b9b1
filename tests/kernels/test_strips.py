"""Chains that run strip by strip, against the float64 reference: every member, stride, border and tail.

The planner is made to form every chain it may, with strips of a given height, whatever it would cost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Binary, Concat, Conv2d, Pool2d, Reduce, Unary
from convoy.graph.reference import run
from convoy.kernels.planner import make_plan
from convoy.kernels.strips import chains
from convoy.kernels.strips.strips import Strips
from convoy.kernels.strips.window import Estimate
from convoy.options import Options
from convoy.target import InstructionSet, Target, host
from instruction_sets import in_turn
from pairs import pairs

BOUND = 2e-6
"""Error, of the largest output; direct float32 sums of these lengths stay below it."""

Cut = Callable[[int], None]


@pytest.fixture
def cut(monkeypatch: pytest.MonkeyPatch) -> Cut:
    """``cut(rows)``: every possible chain runs in strips of ``rows`` rows."""

    def force(rows: int) -> None:
        def estimate(stages: Sequence[object], *_: object) -> Estimate:
            return Estimate(apart=1e6 * len(stages) ** 2, together=0, rows=rows)

        monkeypatch.setattr(chains, "estimate_chain", estimate)

    return force


def conv(b: Builder, x: str, out: int, kernel: int, act: str = "relu", **attributes: object) -> str:
    channels = b.tensors[x].shape[1]
    groups = int(attributes.get("groups", 1))  # type: ignore[call-overload]
    w, bias = b.weight(out, channels // groups, kernel, kernel), b.weight(out)
    return b.add(Unary, b.add(Conv2d, x, w, bias, **attributes), kind=act)


def depthwise(b: Builder, x: str, kernel: int, stride: int = 1, act: str = "relu") -> str:
    channels, pad = b.tensors[x].shape[1], kernel // 2
    return conv(
        b, x, channels, kernel, act, stride=(stride, stride), padding=(pad, pad, pad, pad), groups=channels
    )


def expand_depthwise_project() -> Graph:
    b = Builder([1, 12, 13, 11])
    x = conv(b, "x0", 12, 1)
    y = depthwise(b, conv(b, x, 37, 1), 3)
    y = b.add(Conv2d, y, b.weight(12, 37, 1, 1), b.weight(12))
    return b.graph(b.add(Binary, y, x, kind="add"))


def strided_depthwise() -> Graph:
    b = Builder([1, 12, 15, 14])
    y = depthwise(b, conv(b, "x0", 20, 1, act="silu"), 5, 2, act="silu")
    return b.graph(conv(b, y, 9, 1, act="hardswish"))


def stem_and_pool() -> Graph:
    b = Builder([1, 3, 29, 27])
    x = conv(b, "x0", 18, 7, stride=(2, 2), padding=(3, 3, 3, 3))
    x = b.add(
        Pool2d, x, shape=[1, 18, 8, 8], kind="max", kernel=(3, 3), stride=(2, 2), padding=(1, 1, 1, 1)
    )
    return b.graph(conv(b, x, 6, 1))


def averages() -> Graph:
    b = Builder([1, 5, 12, 10])
    x = conv(b, "x0", 7, 3, act="tanh", padding=(1, 1, 1, 1))
    size = {"kernel": (3, 3), "padding": (1, 1, 1, 1)}
    x = b.add(Pool2d, x, shape=[1, 7, 12, 10], kind="avg", **size)
    x = conv(b, x, 7, 1, act="tanh")
    size = {"kernel": (3, 2), "padding": (2, 1, 1, 1), "stride": (2, 1)}
    return b.graph(b.add(Pool2d, x, shape=[1, 7, 7, 11], kind="avg", count_include_pad=True, **size))


def scaled_before_convolution() -> Graph:
    # what stands before a 1x1 in DenseNet
    b = Builder([1, 21, 9, 10])
    x = conv(b, "x0", 21, 3, padding=(1, 1, 1, 1))
    y = b.add(Binary, x, b.weight(21, 1, 1), kind="mul")
    y = b.add(Unary, b.add(Binary, y, b.weight(21, 1, 1), kind="add"), kind="relu")
    y = conv(b, y, 10, 1)
    return b.graph(b.add(Concat, x, y, axis=1))


def squeeze_excite() -> Graph:
    b = Builder([1, 10, 9, 9])
    x = depthwise(b, conv(b, "x0", 19, 1, act="silu"), 3, act="silu")
    s = conv(b, b.add(Reduce, x, kind="mean", axes=(2, 3)), 19, 1, act="sigmoid")
    return b.graph(conv(b, b.add(Binary, x, s, kind="mul"), 8, 1))


def result_that_others_read() -> Graph:
    # the second 1x1's input is also added later: it is no strip
    b = Builder([1, 16, 10, 9])
    x = conv(b, "x0", 16, 3, padding=(1, 1, 1, 1))
    x = conv(b, x, 33, 1)
    y = conv(b, conv(b, x, 16, 1), 33, 1)
    return b.graph(b.add(Binary, x, y, kind="add"))


def wide_windows() -> Graph:
    # dilation, strides larger than kernels, paddings of their own on each side
    b = Builder([1, 8, 23, 12])
    x = conv(b, "x0", 9, 3, dilation=(3, 1), padding=(4, 1, 2, 1))
    x = conv(b, x, 17, 1, stride=(3, 1))
    x = conv(b, x, 6, 2, padding=(1, 0, 0, 1))
    return b.graph(conv(b, x, 6, 3, padding=(2, 1, 2, 1), stride=(2, 2)))


def into_a_concat() -> Graph:
    b = Builder([1, 16, 8, 9])
    x = conv(b, "x0", 32, 1)
    parts = [depthwise(b, conv(b, x, 32, 1), 3), conv(b, conv(b, x, 48, 1), 32, 3, padding=(1, 1, 1, 1))]
    return b.graph(conv(b, b.add(Concat, *parts, axis=1), 8, 3, padding=(1, 1, 1, 1)))


GRAPHS = [
    expand_depthwise_project, strided_depthwise, stem_and_pool, averages, scaled_before_convolution,
    squeeze_excite, result_that_others_read, wide_windows, into_a_concat,
]  # fmt: skip


def agrees(graph: Graph, isa: InstructionSet, threads: int) -> None:
    arrays = Builder(*[graph.shape(name) for name in graph.inputs], seed=5).arrays()
    region = backend.load(graph, Target(isa), Options(threads=threads, accuracy="direct"))
    region(*arrays)  # leaves the arena dirty
    for got, want in zip(region(*arrays), run(graph, arrays, np.float64), strict=True):
        assert np.abs(got - want).max() <= BOUND * np.abs(want).max()


@pytest.mark.slow
@pytest.mark.parametrize(("make", "isa"), in_turn(GRAPHS))
def test_strips_agree_with_the_reference(make: Callable[[], Graph], isa: InstructionSet, cut: Cut) -> None:
    # strips that do not divide the height, on shares that differ
    graph = make()
    cut(2)
    agrees(graph, isa, threads=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "rows", "threads"),
    pairs([expand_depthwise_project, stem_and_pool, wide_windows], [1, 4, 50], [1, 3]),
)
def test_any_height_of_strips_and_shares(
    make: Callable[[], Graph], rows: int, threads: int, cut: Cut
) -> None:
    # one row, some, more than there are
    cut(rows)
    agrees(make(), host().isa, threads)


@pytest.mark.slow
def test_a_name_of_the_model_does_not_end_a_comment(cut: Cut) -> None:
    graph = expand_depthwise_project()
    cut(2)
    agrees(
        replace(graph, nodes=tuple(replace(node, origin="a */ b") for node in graph.nodes)), host().isa, 1
    )


@pytest.mark.parametrize("make", GRAPHS)
def test_all_of_these_form_chains(make: Callable[[], Graph], cut: Cut) -> None:
    cut(2)
    plan = make_plan(make(), Target("avx512"), Options(accuracy="direct"))
    assert any(isinstance(step, Strips) for step in plan.steps)
