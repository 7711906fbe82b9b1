"""The processes of a campaign: one that knows what is right, one for each door; replaced when they end."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from fuzz.campaign.case import Case
from worker import Crash, Worker

ROOT = Path(__file__).parents[3]
PYTHONS = {
    "oracle": Path(sys.executable),
    "relax": Path(sys.executable),
    "relay": ROOT / ".venv-relay/bin/python",
}
STARTS = {"relax": "fuzz.campaign.judge:start", "relay": "fuzz.campaign.judge:start"}
HEAP_CHECKED = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3"}
"""glibc ends a process that writes past a block when that is freed: the network that did it, not one that
comes later, is then the crash.  Where glibc has no such library, the loader says so and goes on."""
TASKS_EACH = 150
"""A process is replaced after as many: TVM keeps what it has loaded."""


def doors_there() -> tuple[str, ...]:
    """The doors that have an environment here."""
    return tuple(door for door in STARTS if PYTHONS[door].is_file())


class Crew:
    """Workers by what they do, started when they are first asked."""

    def __init__(self) -> None:
        self.workers: dict[str, Worker] = {}
        self.tasks: dict[str, int] = {}

    def ask(self, whom: str, work: str, task: Any, seconds: float) -> Any:
        """The result of a task, or a ``Crash``."""
        worker = self.workers.get(whom)
        if worker is None or not worker.alive or self.tasks[whom] >= TASKS_EACH:
            if worker is not None and worker.alive:
                worker.finish()
            worker = self.workers[whom] = Worker(
                STARTS.get(whom), PYTHONS[whom], HEAP_CHECKED if whom in STARTS else None
            )
            self.tasks[whom] = 0
        self.tasks[whom] += 1
        return worker.ask(work, task, seconds)

    def oracle(self, work: str, task: Any, seconds: float = 120) -> Any:
        """Ask a function of ``fuzz.campaign.oracle``."""
        return self.ask("oracle", f"fuzz.campaign.oracle:{work}", task, seconds)

    def judge(self, folder: Path, numbers: tuple[int, ...], case: Case, seconds: float) -> Any:
        """``fuzz.campaign.judge.judge`` of networks, or a ``Crash``."""
        return self.ask(case.door, "fuzz.campaign.judge:judge", (str(folder), numbers, case), seconds)

    def judge_plain_tvm(
        self, folder: Path, number: int, case: Case, seconds: float, kind: str = "error"
    ) -> str | None:
        """Why plain TVM fails at a network as badly as ``kind``; None if it does not.

        A network that it refuses excuses a refusal, but no wrong answer and no crash.
        """
        task = (str(folder), (number,), case)
        found = self.ask(case.door, "fuzz.campaign.judge:judge_plain_tvm", task, seconds)
        if isinstance(found, Crash):
            return in_words(found)
        if found is not None and found[0] == "error" and kind != "error":
            plainer = replace(case, passes=())  # a pass may be what fails
            return self.judge_plain_tvm(folder, number, plainer, seconds, kind) if case.passes else None
        if found is not None and found[0] == "wrong":
            task = (str(folder), number, str(folder / f"{number}-plain.npz"), "float32")
            found = None if self.oracle("is_rounding", task) is True else found
        return None if found is None else str(found[1])

    def end(self) -> None:
        for worker in self.workers.values():
            if worker.alive:
                worker.end("stopped")


def in_words(crash: Crash) -> str:
    """A crash in one line, with the first lines of a fault's trace."""
    said = " ".join(line.strip() for line in crash.said.splitlines()[-8:] if line.strip())
    return f"{crash}: {said}" if said else str(crash)
