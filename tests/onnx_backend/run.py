"""Run ONNX's node tests through Convoy and plain TVM, and write the list of both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
import tvm

from onnx_backend.cases import Case
from onnx_backend.judge import Outcome, judge_convoy, judge_plain_tvm, take_everything
from onnx_backend.pool import Crash, work_through

Progress = Callable[[int, int], None]

SECONDS = 120.0
"""Time limit of one case: a crowded machine, not a slow case, is what uses it."""


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
    progress: Progress | None = None,
) -> list[Result]:
    """Judge every case.

    Parameters
    ----------
    small : take regions too small to be worth a call as well, as nearly all of node tests are
    ask_tvm : run plain TVM on every case, not only on those Convoy fails
    """
    start = take_everything if small else None
    total = len(cases) * (2 if ask_tvm else 1)
    convoy = _judge(cases, judge_convoy, processes, start, progress, 0, total)
    asked = [i for i, outcome in enumerate(convoy) if ask_tvm or not outcome.passed]
    total = len(cases) + len(asked)
    plain = _judge([cases[i] for i in asked], judge_plain_tvm, processes, None, progress, len(cases), total)
    of_tvm = dict(zip(asked, plain, strict=True))
    return [Result(case.name, convoy[i], of_tvm.get(i)) for i, case in enumerate(cases)]


def _judge(
    cases: Sequence[Case],
    judge: Callable[[Case], Outcome],
    processes: int,
    start: Callable[[], None] | None,
    progress: Progress | None,
    before: int,
    total: int,
) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    for i, result in work_through(cases, judge, processes=processes, seconds=SECONDS, start=start):
        outcomes[i] = Outcome(False, str(result)) if isinstance(result, Crash) else result
        if progress is not None:
            progress(before + len(outcomes), total)
    return [outcomes[i] for i in range(len(cases))]


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
