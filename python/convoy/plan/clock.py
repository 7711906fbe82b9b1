"""From the cycles of the planner's model to seconds: on the machine it was measured on."""

from __future__ import annotations

from convoy.plan.tiles import FMA_UNITS
from convoy.target import Target

HERTZ = 2.4e9
"""Its clock under vector load."""


def seconds(cycles: float) -> float:
    return cycles / HERTZ


def nominal_flops(target: Target, threads: int) -> float:
    """FLOP/s of its multiply-adds, on so many cores."""
    return 2.0 * FMA_UNITS * target.lanes * threads * HERTZ
