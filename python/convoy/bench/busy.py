"""A machine that is busy with other work: made so on purpose, and noticed."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@contextmanager
def other_work(processes: int) -> Iterator[tuple[int, ...]]:
    """Keep ``processes`` cores busy, each by a process that computes; their process numbers."""
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=_compute, args=(os.getpid(),), daemon=True) for _ in range(processes)]
    try:
        for process in started:
            process.start()
        yield tuple(process.pid for process in started if process.pid is not None)
    finally:
        for process in started:
            if process.pid is not None:
                process.kill()
                process.join()


def _compute(parent: int) -> None:
    """Until the process that started it ends, whatever ends that."""
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


class OtherLoad:
    """The cores that processes other than this one and ``known`` take, from now on."""

    def __init__(self, known: Iterable[int]) -> None:
        self._known = (os.getpid(), *known)
        self._start = time.monotonic(), _machine_seconds(), self._own_seconds()

    def cores(self) -> float:
        """Their average since the start; 0 where /proc/stat does not say."""
        began, machine, own = self._start
        elapsed = time.monotonic() - began
        others = (_machine_seconds() - machine) - (self._own_seconds() - own)
        return max(0.0, others / elapsed) if elapsed > 0 else 0.0

    def _own_seconds(self) -> float:
        return sum(_process_seconds(number) for number in self._known)


def _machine_seconds() -> float:
    """Processor time of all cores that was not idle, also what a hypervisor gave to other machines."""
    try:
        first = Path("/proc/stat").read_text("utf-8").split("\n", 1)[0].split()
    except OSError:
        return 0.0
    user, nice, system, _, _, irq, softirq, steal = (int(field) for field in first[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _process_seconds(number: int) -> float:
    """Processor time of a process, all its threads, and its children that have ended."""
    try:
        fields = Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / _TICKS
