"""The estimated time of each step of a plan.

Where a step was chosen by an estimate, that is it.  The others' decides nothing: they move memory, and take
as long as that takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from convoy.plan.step import Step
from convoy.target import Target


def estimate_steps(steps: Sequence[Step], target: Target, threads: int) -> tuple[float, ...]:
    """Cycles of each step, of the busiest thread."""
    return tuple(_traffic(step, target, threads) if step.cycles is None else step.cycles for step in steps)


def estimate_work(cycles: Sequence[float], target: Target, threads: int) -> float:
    """Cycles of one image on one core, from steps of so many each on ``threads``."""
    return max(1.0, threads * sum(max(0.0, c - target.step) for c in cycles))


def work_worth_a_team(target: Target, threads: int) -> float:
    """The least work of a call for which ``threads`` gain more than it takes to wake them."""
    return target.team / (1 - 1 / threads) if threads > 1 else 0.0


def images_worth_a_team(work: float, target: Target, threads: int) -> int:
    """The least images of such a call."""
    return max(1, ceil(work_worth_a_team(target, threads) / work))


def _traffic(step: Step, target: Target, threads: int) -> float:
    """From the bytes it reads and writes, or what it computes if that takes longer."""
    cycles = sum(operand.bytes for operand in (*step.reads, step.y)) / target.cached_rate
    return max(cycles, step.least_cycles(target)) / threads + target.step
