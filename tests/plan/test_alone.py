"""Steps that one thread computes: which they are, where they stand, and that all others wait for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from building import Builder
from convoy.codegen.emit import emit
from convoy.graph.ops import Binary, Conv2d, Reduce, Unary
from convoy.graph.sizes import open_size
from convoy.kernels.copy import copy_whole
from convoy.kernels.planner import make_plan
from convoy.kernels.registry import emit_step
from convoy.options import Options
from convoy.plan.alone import find_alone, gather
from convoy.plan.buffers import Array, Buffer
from convoy.plan.memory import place_barriers
from convoy.plan.step import Note, Step
from convoy.target import Target

BUFFERS = [Buffer("arena", 64, i * 64) for i in range(6)]
Program = tuple[list[Step], list[bool]]


def copy(source: int, target: int, size: int = 16) -> Step:
    return copy_whole(Note("copy", ""), Array(source, 0, (size,)), Array(target, 0, (size,)))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    index = st.integers(0, len(BUFFERS) - 1)
    steps = draw(st.lists(st.tuples(index, index, st.booleans()), min_size=1, max_size=20))
    return [copy(a, b) for a, b, _ in steps], [alone for _, _, alone in steps]


def conflict(one: Step, other: Step) -> bool:
    written, also = ({o.buffer for o in step.writes} for step in (one, other))
    read, too = ({o.buffer for o in step.reads} for step in (one, other))
    return bool(written & (also | too) or also & read)


@given(programs(), st.integers(0, 20))
def test_what_meets_in_memory_is_in_order(program: Program, batched: int) -> None:
    steps, alone = program
    barriers = place_barriers(BUFFERS, steps, alone, batched)
    stretch, held = 0, False
    stretches = []  # between meetings of all threads
    for i, barrier in enumerate(barriers):
        if barrier or (held and not alone[i]):
            stretch, held = stretch + 1, barrier and alone[i]
        stretches.append((stretch, alone[i]))
    for j, step in enumerate(steps):
        for i in range(j):
            one_thread = alone[i] and alone[j]
            assert not conflict(steps[i], step) or stretches[i][0] < stretches[j][0] or one_thread
    assert batched == 0 or batched >= len(steps) or barriers[batched]


@given(programs())
def test_gathered_steps_keep_the_order_they_need(program: Program) -> None:
    steps, alone = program
    order = gather(steps, alone, BUFFERS)
    assert sorted(order) == list(range(len(steps)))
    place = {step: i for i, step in enumerate(order)}
    for j, step in enumerate(steps):
        assert all(place[i] < place[j] for i in range(j) if conflict(steps[i], step))
    shared = [i for i in order if not alone[i]]
    assert shared == sorted(shared)


def test_the_last_to_come_computes_what_follows() -> None:
    few, many = copy(0, 1), copy(1, 2)
    assert place_barriers(BUFFERS, [many, few, copy(1, 3), copy(3, 4)], [False, True, True, False]) == [
        False, True, False, False
    ]  # fmt: skip
    # the first thread's as they come; no one waits for a step that nobody reads
    assert place_barriers(BUFFERS, [few, many], [True, True]) == [False, False]
    assert place_barriers(BUFFERS, [few, many], [True, False]) == [False, True]
    assert place_barriers(BUFFERS, [few, copy(2, 3)], [True, False]) == [False, False]


def test_they_are_gathered_behind_the_first() -> None:
    # 1 and 3 come of what is there, 4 of what a shared step makes
    steps = [copy(0, 1), copy(1, 2), copy(0, 3), copy(2, 4)]
    assert gather(steps, [True, False, True, True], BUFFERS) == [0, 2, 1, 3]
    assert gather(steps, [False] * 4, BUFFERS) == [0, 1, 2, 3]
    # it writes what is read before it
    assert gather([copy(0, 1), copy(1, 2), copy(0, 1)], [True, False, True], BUFFERS) == [0, 1, 2]


def test_arguments_are_told_apart_by_their_numbers() -> None:
    # two buffers are one output
    buffers = [Buffer("input", 64), Buffer("output", 64), Buffer("output", 64), Buffer("output", 64, 1)]
    assert gather([copy(0, 3), copy(0, 1), copy(0, 2)], [True, False, True], buffers) == [0, 1, 2]
    assert gather([copy(0, 1), copy(0, 3), copy(0, 2)], [True, False, True], buffers) == [0, 2, 1]


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_little_is_computed_by_one_thread(threads: int) -> None:
    target = Target("avx512")
    step = copy(0, 1)
    extra = target.barrier / max(threads - 1, 1) / 4
    cycles = [target.step + extra * share for share in (0.9, 1.1)]
    assert find_alone([step, step], cycles, target, threads) == [threads > 1, False]
    # an estimate that was compared with others is what the step takes
    chosen = replace(step, cycles=0.0)
    cycles = [4 * extra * share for share in (0.9, 1.1)]
    assert find_alone([chosen, chosen], cycles, target, threads) == [threads > 1, False]
    assert find_alone([copy(0, 1, open_size("n", likely=4))], [target.step], target, threads) == [False]


def squeezing(channels: int, size: int) -> str:
    """Squeeze and excite."""
    b = Builder([1, channels, size, size])
    y = b.add(Reduce, "x0", kind="mean", axes=(2, 3))
    y = b.add(Unary, b.add(Conv2d, y, b.weight(8, channels, 1, 1)), kind="relu")
    y = b.add(Unary, b.add(Conv2d, y, b.weight(channels, 8, 1, 1)), kind="sigmoid")
    plan = make_plan(b.graph(b.add(Binary, "x0", y, kind="mul")), Target("avx512"), Options(threads=2))
    return emit(plan, "squeezing", emit_step)


def test_one_meeting_is_written_around_them() -> None:
    text = squeezing(32, 40)
    image = text[text.index("static void run_image") :]
    inside = image[image.index("if (convoy_arrive(t)) {") : image.index("convoy_release(t)")]
    assert inside.count("((cv_thread){0, 1}, f);") == 2
    assert "convoy_barrier" not in inside
    assert image.count("convoy_arrive") == 1
    assert "convoy_arrive" not in squeezing(9600, 2)
