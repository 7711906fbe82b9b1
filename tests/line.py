"""The line a script prints for each of its tests."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """What became of one test."""

    test: str
    size: str
    """How much of it was done."""
    good: bool
    seconds: float
    text: str = ""
    """What was wrong, or what else there is to say."""

    def __str__(self) -> str:
        more = f": {self.text}" if self.text else ""
        return f"{self.test}: {self.size}: {'ok' if self.good else 'FAILED'}: {self.seconds:.1f} s{more}"
