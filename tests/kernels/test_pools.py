"""Which pools are computed from the tiles of a Winograd convolution, what is still written then, and that
each is reported with its estimate."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, Pool2d, Unary
from convoy.kernels import planner
from convoy.kernels.conv2d.winograd import WinogradConv
from convoy.kernels.planner import make_plan
from convoy.kernels.pool import Pool
from convoy.options import Options
from convoy.plan.plan import Plan
from convoy.report.decision import Report
from convoy.target import Target
from convoy.target.kernels import DirectCosts

TARGET = Target("avx512")
SIZE = 56
CHANNELS = 64


def conv(b: Builder, x: str, stride: int = 1) -> str:
    w = b.weight(CHANNELS, CHANNELS, 3, 3)
    x = b.add(Conv2d, x, w, b.weight(CHANNELS), stride=(stride, stride), padding=(1, 1, 1, 1))
    return b.add(Unary, x, kind="relu")


def pool(b: Builder, x: str, kernel: int = 2, stride: int = 2, pad: int = 0) -> str:
    size = (b.tensors[x].shape[2] + 2 * pad - kernel) // stride + 1
    return b.add(
        Pool2d, x, shape=[1, CHANNELS, size, size], kind="max", kernel=(kernel, kernel),
        stride=(stride, stride), padding=(pad, pad, pad, pad),
    )  # fmt: skip


def pooled_block() -> Graph:
    b = Builder([1, CHANNELS, SIZE, SIZE])
    return b.graph(conv(b, pool(b, conv(b, conv(b, "x0")))))


def from_tiles(plan: Plan) -> list[WinogradConv]:
    return [step for step in plan.steps if isinstance(step, WinogradConv) and step.pool]


def pools_by_themselves(plan: Plan) -> int:
    return sum(isinstance(step, Pool) for step in plan.steps)


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_a_pool_takes_the_tiles_of_the_convolution_before_it(threads: int) -> None:
    # conv -> relu -> pool  =>  one step, whose convolution's map is nowhere
    plan = make_plan(pooled_block(), TARGET, Options(threads=threads))
    (step,) = from_tiles(plan)
    assert not step.keeps
    assert step.y not in step.writes
    assert pools_by_themselves(plan) == 0


def test_what_nobody_reads_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    b = Builder([1, 3, SIZE, SIZE])
    small = b.add(Conv2d, "x0", b.weight(CHANNELS, 3, 3, 3), padding=(1, 1, 1, 1))
    graph = b.graph(pool(b, conv(b, small)))
    from_tiles = make_plan(graph, TARGET)
    monkeypatch.setattr(planner, "choose_pools", lambda *_: {})
    by_itself = make_plan(graph, TARGET)
    # two whole maps at a time, or one and a quarter
    assert by_itself.arena_bytes - from_tiles.arena_bytes > 4 * CHANNELS * SIZE * SIZE * 3 // 5


@pytest.mark.parametrize(("pool_tap", "steps"), [(1.0, 1), (1e6, 0)], ids=["pays", "does not pay"])
def test_the_estimates_that_are_the_reason_decide(pool_tap: float, steps: int) -> None:
    b = Builder([1, CHANNELS, SIZE, SIZE])
    report, target = Report(), replace(TARGET, direct=DirectCosts(pool_tap=pool_tap))
    plan = make_plan(b.graph(pool(b, conv(b, "x0"))), target, report=report)
    assert len(from_tiles(plan)) == steps
    assert pools_by_themselves(plan) == 1 - steps
    (decision,) = [d for d in report.decisions if "winograd tiles" in d.choice]
    apart, together = map(int, re.findall(r"(?:by itself|from the tiles) (\d+)", decision.reason))
    assert decision.choice.startswith("from") == (together < apart) == bool(steps)


def test_a_map_that_others_read_is_written_too() -> None:
    b = Builder([1, CHANNELS, SIZE, SIZE])
    x = conv(b, "x0")
    y = pool(b, x)
    plan = make_plan(b.graph(conv(b, y), conv(b, x)), TARGET)
    (step,) = from_tiles(plan)
    assert step.keeps
    assert step.y in step.writes


def test_so_is_one_that_leaves_the_region() -> None:
    b = Builder([1, CHANNELS, SIZE, SIZE])
    x = conv(b, "x0")
    (step,) = from_tiles(make_plan(b.graph(x, pool(b, x)), TARGET))
    assert step.keeps


def test_of_two_pools_one_takes_the_tiles() -> None:
    b = Builder([1, CHANNELS, SIZE, SIZE])
    x = conv(b, "x0")
    plan = make_plan(b.graph(pool(b, x), pool(b, x)), TARGET)
    assert [step.keeps for step in from_tiles(plan)] == [True]
    assert pools_by_themselves(plan) == 1


@pytest.mark.parametrize(
    ("kernel", "stride", "pad"), [(3, 3, 0), (2, 1, 0), (3, 2, 0), (2, 2, 1)], ids=str
)  # fmt: skip
def test_windows_that_cross_tiles_are_left(kernel: int, stride: int, pad: int) -> None:
    b = Builder([1, CHANNELS, SIZE, SIZE])
    plan = make_plan(b.graph(pool(b, conv(b, "x0"), kernel, stride, pad)), TARGET)
    assert any(isinstance(step, WinogradConv) for step in plan.steps)
    assert from_tiles(plan) == []
    assert pools_by_themselves(plan) == 1


def test_direct_convolutions_have_no_such_tiles() -> None:
    b = Builder([1, CHANNELS, SIZE, SIZE])
    plan = make_plan(b.graph(pool(b, conv(b, "x0", stride=2))), TARGET)
    assert from_tiles(plan) == []


def test_neither_has_what_an_epilogue_does_not_take() -> None:
    # conv -> relu -> mul -> pool: the product is a step of its own
    b = Builder([1, CHANNELS, SIZE, SIZE])
    x = b.add(Binary, conv(b, "x0"), b.weight(CHANNELS, 1, 1), kind="mul")
    assert from_tiles(make_plan(b.graph(pool(b, x)), TARGET)) == []


def test_each_is_a_decision_with_its_estimates() -> None:
    report = Report()
    make_plan(pooled_block(), TARGET, None, report)
    (decision,) = [d for d in report.decisions if d.choice == "from winograd tiles"]
    assert "max_pool2d" in decision.node
    assert "by itself" in decision.reason
    assert decision.cost
