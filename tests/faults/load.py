"""Many calls, many callers, many loads and forks: nothing may grow, and no answer be another."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

from faults.child import Outcome, run_in_child
from faults.network import answers_right, compile_network, draw_input, is_right
from line import Line

GROWTH = 6 << 20
"""Bytes the resident memory may grow between the first tenth and the end: what an allocator keeps."""
CALLERS = 8


def call_from_threads(folder: Path, seconds: float) -> Line:
    """Eight threads call one runner with batches of their own; every answer is compared with the first."""
    start = time.monotonic()

    def call() -> tuple[int, int]:
        from convoy.deploy.runner import Runner

        runner = Runner(_library(folder))
        inputs = [draw_input(1 + i % 3, seed=i) for i in range(CALLERS)]
        answers = [runner.run([x])[0] for x in inputs]
        assert all(is_right(0, x, y) for x, y in zip(inputs, answers, strict=True))
        runs, wrong = [0] * CALLERS, [0] * CALLERS
        end = time.monotonic() + seconds

        def go_on(i: int) -> None:
            while time.monotonic() < end:
                runs[i] += 1
                wrong[i] += not (runner.run([inputs[i]])[0] == answers[i]).all()

        threads = [threading.Thread(target=go_on, args=(i,)) for i in range(CALLERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return sum(runs), sum(wrong)

    outcome = run_in_child(call, seconds + 600)
    if outcome.kind != "done":
        return Line("callers", f"{seconds:g} s", False, time.monotonic() - start, str(outcome))
    runs, wrong = outcome.value
    size = f"{CALLERS} threads, {runs} calls in {seconds:g} s"
    return Line("callers", size, not wrong, time.monotonic() - start, f"{wrong} wrong" if wrong else "")


def infer_often(folder: Path, count: int) -> Line:
    """One runner, again and again: memory stays where it is."""
    start = time.monotonic()

    def infer() -> tuple[int, int]:
        from convoy.deploy.runner import Runner

        runner, x = Runner(_library(folder)), draw_input()
        before, wrong = 0, 0
        for i in range(count):
            answer = runner.run([x])[0]
            if i % 1000 == 0:
                wrong += not is_right(0, x, answer)
            if i == count // 10:
                before = _resident()
        return _resident() - before, wrong

    return judge_growth("inferences", str(count), run_in_child(infer, 3600), start)


def load_often(folder: Path, count: int) -> Line:
    """Load, run, unload: memory, threads and open files stay."""
    start = time.monotonic()

    def load() -> tuple[int, int]:
        library, before, wrong = _library(folder), (0, 0, 0), 0
        for i in range(count):
            wrong += not answers_right(0, library)
            gc.collect()
            if i == count // 10:
                before = (_resident(), *_threads_and_files())
        wrong += _threads_and_files() != before[1:]
        return _resident() - before[0], wrong

    return judge_growth("loads", str(count), run_in_child(load, 3600), start)


def fork_while_running(folder: Path, count: int) -> Line:
    """Children that a fork makes in the middle of a run, run too."""
    start = time.monotonic()

    def fork() -> int:
        from convoy.deploy.runner import Runner

        runner, x = Runner(_library(folder)), draw_input(2)
        stop = threading.Event()

        def go_on() -> None:
            while not stop.is_set():
                runner.run([x])

        caller = threading.Thread(target=go_on)
        caller.start()
        right = 0
        for _ in range(count):
            child = run_in_child(lambda: all(is_right(0, x, runner.run([x])[0]) for _ in range(5)), 120)
            right += child.value is True
        stop.set()
        caller.join()
        return right

    outcome = run_in_child(fork, 3600)
    good = outcome.kind == "done" and outcome.value == count
    return Line(
        "forks", f"{count} while running", good, time.monotonic() - start, "" if good else str(outcome)
    )


def judge_growth(test: str, size: str, outcome: Outcome, start: float) -> Line:
    if outcome.kind != "done":
        return Line(test, size, False, time.monotonic() - start, str(outcome))
    growth, wrong = outcome.value
    text = f"memory grew by {growth / 1e6:.1f} MB" + (f", {wrong} wrong" if wrong else "")
    return Line(test, size, growth <= GROWTH and not wrong, time.monotonic() - start, text)


def _library(folder: Path) -> Path:
    """A compiled network; made where it is not there yet."""
    path = folder / "load.so"
    if not path.exists():
        compile_network(0, path)
    return path


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def _threads_and_files() -> tuple[int, int]:
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
