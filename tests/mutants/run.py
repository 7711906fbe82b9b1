"""Make mutants, judge each in a process of its own kind, keep what was found."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mutants.judge import Verdict, judge_answer, judge_convoy, limit_memory, new_folder
from onnx_backend.pool import Crash, work_through

SECONDS = 120.0
"""Time limit of one mutant: a crowded machine, not a slow mutant, is what uses it."""


@dataclass(frozen=True)
class _Task:
    seed: int
    folder: Path
    what: str = ""


def run_mutants(
    seeds: Sequence[int], *, processes: int = 2, seconds: float = SECONDS, keep: Path | None = None
) -> Iterator[Verdict]:
    """A verdict for each seed, as they come: refusals and findings first, then the answers' verdicts.

    Parameters
    ----------
    seconds : float
        Time limit of one mutant.
    keep : Path | None
        Folder for the files of mutants that found something.
    """
    folder = new_folder()
    try:
        answered = []
        for verdict in _judge([_Task(seed, folder) for seed in seeds], _convoy, processes, seconds):
            if verdict.kind == "answered":
                answered.append(_Task(verdict.seed, folder, verdict.what))
                continue
            yield _kept(verdict, folder, keep)
        for verdict in _judge(answered, _answer, processes, seconds):
            yield _kept(verdict, folder, keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _judge(tasks: Sequence[_Task], work: object, processes: int, seconds: float) -> Iterator[Verdict]:
    if not tasks:
        return
    for i, result in work_through(
        tasks,
        work,
        processes=processes,
        seconds=seconds,
        start=limit_memory,  # type: ignore[arg-type]
    ):
        if isinstance(result, Crash):
            task = tasks[i]
            what = task.folder / str(task.seed) / "what.txt"
            result = Verdict(task.seed, what.read_text() if what.exists() else "", "FOUND", str(result))
        yield result


def _convoy(task: _Task) -> Verdict:
    return judge_convoy(task.seed, task.folder)


def _answer(task: _Task) -> Verdict:
    return judge_answer(task.seed, task.what, task.folder)


def _kept(verdict: Verdict, folder: Path, keep: Path | None) -> Verdict:
    """The verdict; the mutant's files go, or where something was found, to ``keep``."""
    place = folder / str(verdict.seed)
    if keep is not None and not verdict.good and place.exists():
        shutil.rmtree(keep / str(verdict.seed), ignore_errors=True)
        shutil.copytree(place, keep / str(verdict.seed), symlinks=True, ignore=_pipes)
        (keep / str(verdict.seed) / "what.txt").write_text(f"{verdict.what!a}\n{verdict.text!a}\n")
    shutil.rmtree(place, ignore_errors=True)
    return verdict


def _pipes(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if (Path(folder) / name).is_fifo()]


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line: how many were refused, right, found."""
    counts = Counter(verdict.kind for verdict in verdicts)
    return (
        f"{len(verdicts)} mutants: {counts['refused']} refused in one line, {counts['right']} answered "
        f"right, {counts['unknown']} answered and refused by ONNX Runtime, {counts['FOUND']} found"
    )
