"""A little of ``scripts/faults``, and what its judges must not let pass."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from faults.child import Child, Outcome, run_in_child
from faults.disks import limit_files
from faults.kills import kill_compilations, race_compilations
from faults.limits import judge_starved
from faults.load import fork_while_running, infer_often, judge_growth, load_often
from faults.network import draw_input, expected, is_right
from line import Line

TESTS: dict[str, Callable[[Path], Line]] = {
    "kills": lambda folder: kill_compilations(folder, 2),
    "races": lambda folder: race_compilations(folder, 3),
    "largest file": lambda folder: limit_files(folder, (4, 65536)),
    "load": lambda folder: infer_often(folder, 2000),
    "loads": lambda folder: load_often(folder, 20),
    "forks": lambda folder: fork_while_running(folder, 3),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults")


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_a_little_of_each(name: str, folder: Path) -> None:
    line = run_in_child(lambda: TESTS[name](folder))
    assert line.kind == "done", line
    assert line.value.good, str(line.value)


def test_a_child_says_how_it_ended() -> None:
    assert run_in_child(lambda: 6 * 7) == Outcome(42)
    assert "division by zero" in run_in_child(lambda: 1 // 0).failure
    assert "status 3" in run_in_child(lambda: os._exit(3)).failure
    assert Child(lambda: os.read(os.pipe()[0], 1)).wait(kill_after=0.1).kind == "killed"
    assert "not done" in Child(lambda: os.read(os.pipe()[0], 1)).wait(0.1).failure


def test_what_is_wrong_is_found() -> None:
    x = draw_input()
    answer = expected(0, x)
    assert is_right(0, x, answer)
    assert not is_right(0, x, answer * 1.001)
    assert not is_right(0, x, answer[:0])
    wrong: list[str] = []
    assert judge_starved(Outcome("status -6", "failed"), "", wrong) == "no memory"
    assert not wrong
    judge_starved(Outcome("IndexError: list index out of range", "failed"), "", wrong)
    judge_starved(Outcome("two\nlines", "refused"), "", wrong)
    judge_starved(Outcome(False), "", wrong)
    assert len(wrong) == 3
    assert judge_growth("", "", Outcome((0, 0)), 0.0).good
    assert not judge_growth("", "", Outcome((100 << 20, 0)), 0.0).good
    assert not judge_growth("", "", Outcome((0, 1)), 0.0).good
