"""The estimated time of each step of a plan.

A convolution's is the estimate its algorithm was chosen by.  The others' decides nothing: they move
memory, and take as long as that takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, prod

from convoy.plan.algorithm import Choice
from convoy.plan.cost import BYTES_PER_CYCLE
from convoy.plan.steps import Array, DepthwiseConv, DirectConv, Gemm, Map, Operand, Step, WinogradConv
from convoy.plan.tiles import FMA_UNITS

CACHED_BYTES_PER_CYCLE = 16.0
"""Of maps, most of which are in some cache when they are read, and written to one; per core."""
CALL_CYCLES = 1500.0
"""To begin a step: a barrier, and the first misses."""
TEAM_CYCLES = 38400.0
"""To wake a team that sleeps: 16 us (docs/threads.md)."""


def estimate_convolution(steps: Sequence[Step], choice: Choice) -> list[Step]:
    """The steps of a convolution, the estimate of its algorithm shared by those that compute it."""
    products = [_products(step) for step in steps]
    share = choice.chosen_cycles / max(sum(products), 1)
    return [
        replace(s, cycles=share * count) if count else s for s, count in zip(steps, products, strict=True)
    ]


def _products(step: Step) -> int:
    """Pixels times taps of a step of a convolution that computes."""
    if isinstance(step, DirectConv):
        return step.y.height * step.y.width * prod(step.kernel)
    return isinstance(step, WinogradConv)


def estimate_others(steps: Sequence[Step], threads: int) -> list[Step]:
    """The steps, those without an estimate with that of their memory traffic."""
    return [s if s.cycles else replace(s, cycles=_traffic(s, threads)) for s in steps]


def estimate_work(steps: Sequence[Step], threads: int) -> float:
    """Cycles of one image on one core, from steps estimated for ``threads``."""
    return max(1.0, threads * sum(s.cycles - CALL_CYCLES for s in steps if s.cycles > CALL_CYCLES))


def images_worth_a_team(work: float, threads: int) -> int:
    """The least images of a call for which ``threads`` gain more than it takes to wake them."""
    return ceil(TEAM_CYCLES / (work * (1 - 1 / threads))) if threads > 1 else 1


def _traffic(step: Step, threads: int) -> float:
    """From the bytes it reads and writes; or a matmul's weights, a depthwise filter's products."""
    cycles = sum(_bytes(operand) for operand in (*step.reads, step.y)) / CACHED_BYTES_PER_CYCLE
    if isinstance(step, Gemm):
        cycles = max(cycles, step.k * step.n * 4 / BYTES_PER_CYCLE)
    if isinstance(step, DepthwiseConv):
        taps = step.kernel[0] * step.kernel[1]
        cycles = max(cycles, step.y.blocks * step.y.height * step.y.width * taps / FMA_UNITS)
    return cycles / threads + CALL_CYCLES


def _bytes(operand: Operand) -> int:
    if isinstance(operand, Array):
        return operand.size * 4
    assert isinstance(operand, Map)
    return operand.blocks * operand.lanes * operand.height * operand.width * 4
