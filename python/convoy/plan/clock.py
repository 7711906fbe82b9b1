"""From the cycles of the planner's model to seconds."""

from __future__ import annotations

from convoy.target import Target


def seconds(cycles: float, target: Target) -> float:
    return cycles / target.clock


def nominal_flops(target: Target, threads: int) -> float:
    """FLOP/s of its multiply-adds, on so many cores."""
    return 2.0 * target.fma_units * target.lanes * threads * target.clock
