"""Chains: fusions that can run together strip by strip, and the rows each of them reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from convoy.plan.fuse import Fusion

MOST_MEMBERS = 8
"""CV_STRIP_MEMBERS."""


@dataclass(frozen=True)
class Window:
    """For rows [a, b) of its result a member reads rows a·stride - pad to (b-1)·stride - pad + reach."""

    stride: int = 1
    pad: int = 0
    reach: int = 0

    @property
    def one_row(self) -> bool:
        """Row by row, every row once."""
        return self == Window()

    @property
    def overlap(self) -> int:
        """Rows that neighbouring ranges of the result both read."""
        return max(self.reach + 1 - self.stride, 0)

    def rows(self, count: int) -> int:
        """Rows read for ``count`` rows."""
        return (count - 1) * self.stride + self.reach + 1


@dataclass(frozen=True)
class Estimate:
    """Cycles of the busiest thread: one fusion after another, and together in strips of ``rows`` rows."""

    apart: float
    together: float
    rows: int

    @property
    def saved(self) -> float:
        return self.apart - self.together


@dataclass(frozen=True)
class Chain:
    """Groups that run together strip by strip, where the last of them stood."""

    fusions: tuple[Fusion, ...]
    windows: tuple[Window, ...]
    """Those of the fusions."""
    estimate: Estimate

    @property
    def reason(self) -> str:
        e = self.estimate
        return (
            f"{e.rows} rows at a time; estimated kilocycles: one by one {e.apart / 1e3:.0f}, "
            f"in strips {e.together / 1e3:.0f}"
        )


def strip_heights(windows: Sequence[Window], rows: int) -> list[int]:
    """Rows of the strips between members, for ``rows`` rows of the last result."""
    heights: list[int] = []
    for window in reversed(windows[1:]):
        rows = window.rows(rows)
        heights.append(rows)
    return heights[::-1]
