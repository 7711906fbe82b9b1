"""The estimated time of each step of a plan.

Where a step was chosen by an estimate, that is it.  The others' decides nothing: they move memory, and take
as long as that takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from convoy.plan.buffers import Array, Operand
from convoy.plan.step import Step

CACHED_BYTES_PER_CYCLE = 16.0
"""Bytes a cycle and core of maps that are in some cache when they are read and written."""
CALL_CYCLES = 1500.0
"""To begin a step: a barrier, and the first misses."""
TEAM_CYCLES = 38400.0
"""To wake a team that sleeps: 16 us (docs/threads.md)."""


def estimate_steps(steps: Sequence[Step], threads: int) -> tuple[float, ...]:
    """Cycles of each step, of the busiest thread."""
    return tuple(_traffic(step, threads) if step.cycles is None else step.cycles for step in steps)


def estimate_work(cycles: Sequence[float], threads: int) -> float:
    """Cycles of one image on one core, from steps of so many each on ``threads``."""
    return max(1.0, threads * sum(c - CALL_CYCLES for c in cycles if c > CALL_CYCLES))


def images_worth_a_team(work: float, threads: int) -> int:
    """The least images of a call for which ``threads`` gain more than it takes to wake them."""
    return ceil(TEAM_CYCLES / (work * (1 - 1 / threads))) if threads > 1 else 1


def _traffic(step: Step, threads: int) -> float:
    """From the bytes it reads and writes, or what it computes if that takes longer."""
    cycles = sum(_bytes(operand) for operand in (*step.reads, step.y)) / CACHED_BYTES_PER_CYCLE
    return max(cycles, step.least_cycles) / threads + CALL_CYCLES


def _bytes(operand: Operand) -> int:
    if isinstance(operand, Array):
        return operand.size * 4
    return operand.blocks * operand.lanes * operand.height * operand.width * 4
