"""Compilations that are killed, and compilations of one model that race for one cache."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np

from faults.child import Child, run_in_child
from faults.network import answers_right, compile_and_run, compile_network
from line import Line

VARIANTS = 400
"""Variants of the network, at most: what was not compiled before is compiled while it is killed."""


def kill_compilations(folder: Path, kills: int) -> Line:
    """Kill a compilation at a random moment, then compile the same: the answer must be right.

    What stands under the library's name after the kill must be whole: that of this compilation, or of the
    one before.
    """
    start = time.monotonic()
    os.environ["CONVOY_CACHE_DIR"] = str(folder / "cache")
    library = folder / "network.so"
    rng = np.random.default_rng(0)
    begin = time.monotonic()
    wrong = [] if _right(VARIANTS, library) else ["the first compilation, which nobody killed"]
    typical = time.monotonic() - begin
    killed, before = 0, VARIANTS
    for i in range(kills):
        variant = i % VARIANTS
        outcome = Child(lambda v=variant: compile_network(v, library)).wait(
            kill_after=float(rng.uniform(0, typical))
        )
        killed += outcome.kind == "killed"
        if outcome.failure:
            wrong.append(f"{i}: {outcome.failure}")
        whole = run_in_child(
            lambda v=variant, b=before: answers_right(b, library) or answers_right(v, library)
        )
        if not (whole.kind == "done" and whole.value):
            wrong.append(f"kill {i}: the library is neither the old nor the new one: {whole}")
        if not _right(variant, library):
            wrong.append(f"kill {i}: the next compilation is not right")
        before = variant
    os.environ.pop("CONVOY_CACHE_DIR")
    text = "; ".join(wrong[:5])
    return Line("kill", f"{killed} of {kills} killed in time", not wrong, time.monotonic() - start, text)


def _right(variant: int, library: Path) -> bool:
    outcome = run_in_child(lambda: compile_and_run(variant, library))
    return outcome.kind == "done" and outcome.value is True


def race_compilations(folder: Path, racers: int) -> Line:
    """Many processes compile one model with one empty cache at once."""
    start = time.monotonic()
    os.environ["CONVOY_CACHE_DIR"] = str(folder / "raced")
    children = [Child(lambda i=i: compile_and_run(500, folder / f"racer{i}.so")) for i in range(racers)]
    outcomes = [child.wait(3600) for child in children]
    os.environ.pop("CONVOY_CACHE_DIR")
    wrong = [f"{i}: {o}" for i, o in enumerate(outcomes) if not (o.kind == "done" and o.value is True)]
    left = [path.name for path in (folder / "raced").rglob(".*")]
    if left:
        wrong.append(f"unfinished files: {left[:3]}")
    for path in folder.glob("racer*.so"):
        path.unlink()
    return Line("race", f"{racers} processes", not wrong, time.monotonic() - start, "; ".join(wrong[:5]))
