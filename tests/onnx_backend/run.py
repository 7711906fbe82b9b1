"""Run ONNX's node tests through Convoy and plain TVM, and write the list of both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import tvm

from onnx_backend.cases import Case
from onnx_backend.journal import Journal
from onnx_backend.judge import Outcome, judge_convoy, judge_plain_tvm, take_everything
from onnx_backend.pool import Crash, work_through

Progress = Callable[[int, int], None]

JUDGES = {"convoy": judge_convoy, "plain TVM": judge_plain_tvm}

SECONDS = 120.0
"""Time limit of one case: a crowded machine, not a slow case, is what uses it."""


class TimeIsUp(Exception):
    """The time for a run was over before all cases were judged."""


@dataclass(frozen=True)
class Result:
    """What became of a case in both backends."""

    name: str
    convoy: Outcome
    tvm: Outcome | None
    """None: Convoy passed, and plain TVM was not asked."""

    @property
    def lost(self) -> bool:
        """Plain TVM passes and Convoy does not: what must never be."""
        return not self.convoy.passed and self.tvm is not None and self.tvm.passed


def run(
    cases: Sequence[Case],
    *,
    processes: int = 2,
    small: bool = True,
    ask_tvm: bool = False,
    journal: Journal | None = None,
    seconds: float = math.inf,
    progress: Progress | None = None,
) -> list[Result]:
    """Judge every case.

    Parameters
    ----------
    small : bool
        Take regions too small to be worth a call as well, as nearly all of node tests are.
    ask_tvm : bool
        Run plain TVM on every case, not only on those Convoy fails.
    journal : Journal | None
        Receives every outcome as it comes; those it has are not asked for again.
    seconds : float
        Time after which no new case is begun.

    Raises
    ------
    TimeIsUp
        If they were not enough.
    """
    known = journal.outcomes if journal else {}
    end = time.monotonic() + seconds

    def judge(backend: str, asked: Sequence[Case], before: int, total: int) -> dict[str, Outcome]:
        of = JUDGES[backend]
        found = {case.name: known[backend, case.name] for case in asked if (backend, case.name) in known}
        todo = [case for case in asked if case.name not in found]
        start = take_everything if small and backend == "convoy" else None
        for i, result in work_through(todo, of, processes=processes, seconds=SECONDS, start=start):
            outcome = Outcome(False, str(result)) if isinstance(result, Crash) else result
            found[todo[i].name] = outcome
            if journal is not None:
                journal.add(backend, todo[i].name, outcome)
            if progress is not None:
                progress(before + len(found), total)
            if time.monotonic() > end and len(found) < len(asked):
                raise TimeIsUp(f"{before + len(found)} of {total} outcomes known")
        return found

    convoy = judge("convoy", cases, 0, len(cases) * (2 if ask_tvm else 1))
    asked = [case for case in cases if ask_tvm or not convoy[case.name].passed]
    plain = judge("plain TVM", asked, len(cases), len(cases) + len(asked))
    return [Result(case.name, convoy[case.name], plain.get(case.name)) for case in cases]


def write_list(results: Sequence[Result], path: Path) -> None:
    """Write what passed and failed, of Convoy and of plain TVM, a case a line."""
    passed = [r for r in results if r.convoy.passed]
    failed = [r for r in results if not r.convoy.passed]
    lost = [r for r in results if r.lost]
    lines = [
        f"# ONNX node tests: onnx {onnx.__version__}, apache-tvm {tvm.__version__}",
        "# <name>/bound: the same case with every input but the first a constant",
        f"# {summary(results)}",
        "",
        f"== plain TVM passes, Convoy fails: {len(lost)}",
        *(f"{r.name}: {r.convoy.reason}" for r in lost),
        "",
        f"== Convoy fails: {len(failed)}",
        *(f"{r.name}: {r.convoy.reason} | plain TVM: {_describe(r.tvm)}" for r in failed),
        "",
        f"== Convoy passes: {len(passed)}",
        *(f"{r.name}: {r.convoy.regions} regions | plain TVM: {_describe(r.tvm)}" for r in passed),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def _describe(outcome: Outcome | None) -> str:
    if outcome is None:
        return "not asked"
    return "passes" if outcome.passed else outcome.reason


def summary(results: Sequence[Result]) -> str:
    """One line: how many passed, how many in regions of Convoy."""
    passed = [r for r in results if r.convoy.passed]
    offloaded = sum(r.convoy.regions > 0 for r in passed)
    asked = [r.tvm for r in results if r.tvm is not None]
    more = f" of the {len(asked)} it was asked" if len(asked) < len(results) else ""
    return (
        f"{len(results)} cases; Convoy passes {len(passed)}, {offloaded} of them with a region of its own; "
        f"plain TVM passes {sum(o.passed for o in asked)}{more}"
    )
