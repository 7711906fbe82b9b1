"""A task that crashes or hangs costs only itself."""

from __future__ import annotations

import os
import time

import pytest

from onnx_backend.pool import Crash, work_through


def square(number: int) -> int:
    if number == 2:
        os._exit(3)
    if number == 4:
        time.sleep(60)
    return number * number


@pytest.mark.slow
def test_each_task_has_its_own_outcome() -> None:
    found = dict(work_through(range(7), square, processes=2, seconds=10))
    assert {i: r for i, r in found.items() if not isinstance(r, Crash)} == {
        i: i * i for i in (0, 1, 3, 5, 6)
    }
    assert str(found[2]) == "the process died, exit code 3"
    assert str(found[4]) == "no result in 10 s"


def test_fewer_tasks_than_processes() -> None:
    assert list(work_through([3], square, processes=2, seconds=30)) == [(0, 9)]


def test_no_tasks() -> None:
    assert list(work_through([], square, processes=2, seconds=5)) == []
