"""Buffers that live at the same time never overlap; barriers stand where memory is shared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convoy.graph.dtypes import BYTES, DType
from convoy.kernels.copy import copy_whole
from convoy.plan.buffers import Array, Buffer
from convoy.plan.memory import PAGE, place_barriers, place_buffers
from convoy.plan.step import Note, Step


def copy(source: int, target: int, size: int = 16, dtype: DType = "float32") -> Step:
    x, y = Array(source, 0, (size,), dtype), Array(target, 0, (size,), dtype)
    return copy_whole(Note("copy", ""), x, y)


def barriers(buffers: list[Buffer], steps: list[Step]) -> list[bool]:
    return place_barriers(buffers, steps, [False] * len(steps))


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Buffer], list[Step]]:
    sizes = draw(st.lists(st.integers(1, 800), min_size=2, max_size=12))
    buffers = [Buffer("arena", size) for size in sizes]
    index = st.integers(0, len(buffers) - 1)
    pairs = draw(st.lists(st.tuples(index, index), min_size=1, max_size=20))
    return buffers, [copy(a, b) for a, b in pairs]


@given(programs())
def test_live_buffers_are_disjoint(program: tuple[list[Buffer], list[Step]]) -> None:
    buffers, steps = program
    placed, sizes = place_buffers(buffers, steps)
    arena = sizes["arena"]
    life: dict[int, list[int]] = {}
    for i, step in enumerate(steps):
        for operand in (step.y, *step.reads):
            life.setdefault(operand.buffer, []).append(i)
    for a in life:
        assert placed[a].index + placed[a].bytes <= arena
        for b in life:
            apart = max(life[a]) < min(life[b]) or max(life[b]) < min(life[a])
            disjoint = (
                placed[a].index + placed[a].bytes <= placed[b].index
                or placed[b].index + placed[b].bytes <= placed[a].index
            )
            assert a == b or apart or disjoint


def test_memory_is_reused_when_it_is_free() -> None:
    # a chain of four equal buffers needs the room of two
    buffers = [Buffer("arena", PAGE) for _ in range(4)]
    _, sizes = place_buffers(buffers, [copy(0, 1), copy(1, 2), copy(2, 3)])
    assert sizes["arena"] == 2 * PAGE


def test_no_two_threads_write_one_page() -> None:
    # the arena before the first one's scratch, and each scratch, end with a page
    buffers = [Buffer("arena", 280), Buffer("arena", 280), Buffer("thread", PAGE + 4), Buffer("batch", 20)]
    step = replace(copy(0, 1), scratch=(Array(2, 0, (PAGE // 4 + 1,)),))
    _, sizes = place_buffers(buffers, [step])
    assert (sizes["arena"], sizes["thread"], sizes["batch"]) == (PAGE, 2 * PAGE, PAGE)


def test_barrier_before_a_reader_of_what_was_written() -> None:
    # write 1, read 1: a barrier; two readers of 0 that write apart: none
    buffers, _ = place_buffers(
        [Buffer("arena", 64) for _ in range(3)], [copy(0, 1), copy(0, 2), copy(1, 2)]
    )
    assert barriers(buffers, [copy(0, 1), copy(0, 2)]) == [False, False]
    assert barriers(buffers, [copy(0, 1), copy(1, 2)]) == [False, True]


def test_barrier_before_a_writer_of_what_is_read() -> None:
    # read 0, then overwrite 0
    buffers, _ = place_buffers([Buffer("arena", 64) for _ in range(3)], [copy(0, 1), copy(2, 0)])
    assert barriers(buffers, [copy(0, 1), copy(2, 0)]) == [False, True]


@pytest.mark.parametrize("dtype", BYTES)
def test_what_a_step_touches_is_counted_in_bytes_of_its_type(dtype: DType) -> None:
    # 64 bytes each, side by side in one buffer, then one element further
    size = BYTES[dtype]
    count = 64 // size
    buffers = [Buffer("arena", 128), Buffer("arena", 64)]
    placed, sizes = place_buffers(buffers, [copy(1, 0, count, dtype)])
    assert sizes["arena"] == PAGE
    whole = copy(1, 0, count, dtype)
    beside = replace(whole, y=Array(0, count, (count,), dtype))
    over = replace(whole, y=Array(0, count - 1, (count,), dtype))
    assert barriers(placed, [whole, beside]) == [False, False]
    assert barriers(placed, [whole, over]) == [False, True]
