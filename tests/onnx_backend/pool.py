"""Processes that work through a list, each task with a time limit.

Not ``concurrent.futures``: a case that crashes or hangs is an outcome here, and must cost only itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import wait
from typing import TypeVar

from worker import Crash, Worker

Task = TypeVar("Task")
Result = TypeVar("Result")


def work_through(
    tasks: Sequence[Task],
    work: Callable[[Task], Result],
    *,
    processes: int,
    seconds: float,
    start: Callable[[], None] | None = None,
) -> Iterator[tuple[int, Result | Crash]]:
    """Do every task in some process; yields each task's number and result, as they come.

    Parameters
    ----------
    work, start
        Functions of a module; ``start`` is called once in every new process.
    seconds : float
        Time limit of one task.
    """
    named, started = _name(work), None if start is None else _name(start)
    waiting = iter(range(len(tasks)))
    busy: dict[int, Worker] = {}
    """By the number of the task they are at."""
    try:
        for number in waiting:
            busy[number] = Worker(started)
            busy[number].give(named, tasks[number])
            if len(busy) == processes:
                break
        while busy:
            limit = min(worker.since + seconds for worker in busy.values())
            ready = wait([w.pipe for w in busy.values()], timeout=max(limit - time.monotonic(), 0))
            done = [i for i, w in busy.items() if w.pipe in ready or time.monotonic() > w.since + seconds]
            for number in done:
                worker = busy.pop(number)
                result = (
                    worker.take() if worker.pipe in ready else worker.end(f"no result in {seconds:g} s")
                )
                following = next(waiting, None)
                if following is not None:
                    worker = worker if worker.alive else Worker(started)
                    busy[following] = worker
                    worker.give(named, tasks[following])
                elif worker.alive:
                    worker.finish()
                yield number, result
    finally:
        for worker in busy.values():
            worker.end("stopped")


def _name(function: Callable[..., object]) -> str:
    return f"{function.__module__}:{function.__qualname__}"
