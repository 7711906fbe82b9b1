"""Processes that work through a list, each task with a time limit.

Not ``concurrent.futures``: a case that crashes or hangs is an outcome here, and must cost only itself.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Generic, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")


class Crash(Exception):
    """The process that worked on a task ended, or was ended at the time limit."""


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
    work, start : functions of a module; ``start`` is called once in every new process
    seconds : time limit of one task
    """
    waiting = iter(range(len(tasks)))
    workers: dict[Connection, _Worker[Task, Result]] = {}
    try:
        for number in waiting:
            worker = _Worker(work, start)
            workers[worker.pipe] = worker
            worker.give(number, tasks[number])
            if len(workers) == processes:
                break
        while workers:
            limit = min(worker.since + seconds for worker in workers.values())
            ready = wait(list(workers), timeout=max(limit - time.monotonic(), 0))
            late = [p for p, w in workers.items() if time.monotonic() > w.since + seconds]
            for pipe in {*ready, *late}:
                worker = workers.pop(pipe)  # type: ignore[arg-type]
                done = worker.number
                result: Result | Crash
                try:
                    result = worker.take() if pipe in ready else worker.end(f"no result in {seconds:g} s")
                except EOFError:
                    result = worker.end("the process died")
                following = next(waiting, None)
                if following is not None:
                    worker = worker if worker.alive else _Worker(work, start)
                    workers[worker.pipe] = worker
                    worker.give(following, tasks[following])
                elif worker.alive:
                    worker.finish()
                yield done, result
    finally:
        for worker in workers.values():
            worker.end("stopped")


class _Worker(Generic[Task, Result]):
    def __init__(self, work: Callable[[Task], Result], start: Callable[[], None] | None) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, far = context.Pipe()
        self.process = context.Process(target=_serve, args=(far, work, start), daemon=True)
        self.process.start()
        far.close()
        self.alive = True
        self.number = -1
        self.since = 0.0

    def give(self, number: int, task: Task) -> None:
        self.number, self.since = number, time.monotonic()
        self.pipe.send(task)

    def take(self) -> Result:
        result: Result = self.pipe.recv()
        return result

    def finish(self) -> None:
        """End it in good order: it removes its temporary files."""
        self.pipe.close()
        self.process.join(10)
        self.end("done")

    def end(self, why: str) -> Crash:
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.alive = False
        code = self.process.exitcode
        return Crash(why if code in (None, 0, -9) else f"{why}, exit code {code}")


def _serve(pipe: Connection, work: Callable[[Task], Result], start: Callable[[], None] | None) -> None:
    if start is not None:
        start()
    while True:
        try:
            task: Task = pipe.recv()
        except EOFError:
            return
        pipe.send(work(task))
