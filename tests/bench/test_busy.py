"""A machine made busy on purpose, and other work noticed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from convoy.bench.busy import OtherLoad, other_work
from convoy.bench.machine import Rates
from convoy.bench.measure import Measurement
from convoy.bench.text import format_others


def processor_seconds(number: int) -> float:
    fields = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compute_until(numbers: tuple[int, ...], seconds: float) -> None:
    """Returns when each has computed for so long; fails if none does."""
    deadline = time.monotonic() + 60
    while min(map(processor_seconds, numbers)) < seconds:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_other_work_computes_and_ends() -> None:
    with other_work(2) as numbers:
        assert len(set(numbers)) == 2
        compute_until(numbers, 0.2)
    for number in numbers:
        assert not Path(f"/proc/{number}").exists()


@pytest.mark.slow
def test_other_work_ends_with_a_parent_that_is_killed() -> None:
    program = "from convoy.bench.busy import other_work\nimport time\nwith other_work(1) as numbers:\n"
    program += "    print(*numbers, flush=True)\n    time.sleep(60)\n"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        number = int(parent.stdout.readline())
        parent.kill()
    deadline = time.monotonic() + 60
    while Path(f"/proc/{number}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_other_load_counts_strangers_and_leaves_out_its_own() -> None:
    # twice the same work, as a stranger's and as one's own: a busy machine adds the same to both
    with other_work(1) as numbers:
        stranger, own = OtherLoad(()), OtherLoad(numbers)
        start = processor_seconds(numbers[0])
        compute_until(numbers, start + 0.5)
        assert stranger.cores() > own.cores()


@pytest.mark.parametrize(("others", "said"), [(0.0, False), (0.05, False), (0.7, True)])
def test_a_busy_machine_is_said(others: float, said: bool) -> None:
    text = format_others(Measurement((), {}, None, Rates(1.0, 1.0), others=others))
    assert ("0.7 cores" in text) == said
    assert bool(text) == said
