"""From the cycles of the planner's model to seconds."""

from __future__ import annotations

from convoy.report.decision import Roof
from convoy.target import Target


def seconds(cycles: float, target: Target) -> float:
    return cycles / target.clock


def nominal_flops(target: Target, threads: int) -> float:
    """FLOP/s of its multiply-adds, on so many cores."""
    return 2.0 * target.fma_units * target.lanes * threads * target.clock


def nominal_roof(target: Target, threads: int) -> Roof:
    """The most that so many of its cores can do."""
    cycles = target.clock * threads
    rates = target.expected
    return Roof(nominal_flops(target, threads), rates.memory * cycles, rates.l2 * cycles)
