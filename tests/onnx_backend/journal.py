"""Outcomes on disk, written as they come: a run that was stopped goes on where it was."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import onnx
import tvm

from onnx_backend.judge import Outcome


class Journal:
    """One line of JSON per outcome, after one that says what was run.

    Parameters
    ----------
    path : Path
        Path of the file; its folder is made.
    small : bool
        As ``run`` takes it.
    resume : bool
        Keep what an earlier run of the same versions and settings found; else start anew.
    """

    def __init__(self, path: Path, *, small: bool, resume: bool) -> None:
        self.path = path
        self.outcomes: dict[tuple[str, str], Outcome] = {}
        """By backend and case."""
        head = json.dumps({"onnx": onnx.__version__, "tvm": tvm.__version__, "small": small})
        lines = path.read_text().splitlines() if resume and path.is_file() else []
        if lines[:1] == [head]:
            for line in lines[1:]:
                self._take(line)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(head + "\n")

    def add(self, backend: str, case: str, outcome: Outcome) -> None:
        self.outcomes[backend, case] = outcome
        with self.path.open("a") as file:
            file.write(json.dumps({"backend": backend, "case": case, **asdict(outcome)}) + "\n")

    def _take(self, line: str) -> None:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            return  # a line that was being written when the run was stopped
        key = entry.pop("backend"), entry.pop("case")
        self.outcomes[key] = Outcome(**entry)
