"""``tune`` reaches the planner from Python and from the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import convoy
from command import Result, tiny_model
from convoy.cli import console
from convoy.options import Options
from convoy.report.decision import Report
from convoy.tune import tuner


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured or remembered for real: the second candidate is the fastest."""
    monkeypatch.setattr(tuner.store, "find", lambda key, folder: None)
    monkeypatch.setattr(tuner.store, "keep", lambda key, folder, times: times)
    monkeypatch.setattr(
        tuner,
        "measure_candidates",
        lambda _, names, *rest: {n: 0.5 + (i != 1) for i, n in enumerate(names)},
    )


def reasons(report: Report) -> list[str]:
    return [d.reason for d in report.decisions if d.step == "plan" and d.node.startswith("conv2d")]


@pytest.mark.parametrize("arguments", [{"tune": 5.0}, {"options": Options(tune=5.0)}], ids=str)
def test_compile_measures_and_says_so(arguments: dict[str, object]) -> None:
    report, lines = Report(), list[str]()
    convoy.compile(tiny_model(), report=report, progress=lines.append, **arguments)
    assert sum(line.startswith("tuning 1 of 1: 5 ways, conv2d [1, 3, 8, 8]") for line in lines) == 1
    (reason,) = reasons(report)
    assert reason.startswith("measured ms: estimated 1500.000, direct ")


def test_compile_estimates_without_being_asked() -> None:
    report = Report()
    convoy.compile(tiny_model(), report=report)
    (reason,) = reasons(report)
    assert reason.startswith("estimated kilocycles")


def test_the_command_line_takes_seconds(
    convoy_command: Callable[..., Result], model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_SECONDS_A_LINE", 0.0)
    result = convoy_command("compile", model, "-o", tmp_path / "tiny.so", "--tune", "5")
    assert result.code == 0
    assert "tuning 1 of 1" in result.err
    assert "measured ms" in convoy_command("explain", model, "--tune", "5").out
    assert convoy_command("compile", model, "-o", tmp_path / "tiny.so", "--tune", "-1").code == 2
