"""What a chain of stages costs, in cycles of the busiest thread: one by one, and strip by strip.

What differs is memory traffic.  One by one, a result that does not fit L2 goes out and comes back, and the
threads meet after each.  Strip by strip, the rows where two shares meet are computed twice, rows that two
strips read are copied, and weights that do not fit beside the strips are read again for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from convoy.kernels.strips.stage import Stage
from convoy.kernels.strips.window import Estimate, strip_heights
from convoy.target import Target


def estimate_chain(stages: Sequence[Stage], target: Target, threads: int) -> Estimate:
    """With the best height of the strips."""
    share = -(-stages[-1].height // threads)
    apart = sum(stage.cycles for stage in stages) / threads
    for maker in stages[:-1]:
        apart += _traffic(maker, target, threads) / threads + target.barrier * (threads > 1)
    compute = _compute(stages, share)
    candidates = [(compute + _overhead(stages, share, rows, target), rows) for rows in _rows(share)]
    together, rows = min(candidates)
    return Estimate(apart, together, rows)


def _rows(share: int) -> list[int]:
    """Heights of strips that cut a share into equal ones, as far as possible."""
    return sorted({-(-share // count) for count in range(1, share + 1)})


def _traffic(maker: Stage, target: Target, threads: int) -> float:
    """Cycles to write the result of a stage and to read it back, which strips save."""
    size = maker.row_bytes * maker.height
    spilled = max(0.0, size - threads * target.l2_bytes / 2)
    handed_over = size * (threads - 1) / threads  # made on one core, read on another
    read = max(spilled / target.stream_rate, handed_over / target.between_cores_rate)
    return 2 * spilled / target.stream_rate + read


def _compute(stages: Sequence[Stage], rows: int) -> float:
    """For ``rows`` rows of the last result."""
    cycles = 0.0
    for stage in reversed(stages):
        cycles += rows * stage.row_cycles
        rows = min(stage.window.rows(rows), stage.x_height)
    return cycles


def _overhead(stages: Sequence[Stage], share: int, rows: int, target: Target) -> float:
    """Cycles that cutting a share into strips costs; infinite where they do not fit L2."""
    count = -(-share // rows)
    heights = strip_heights([stage.window for stage in stages], rows)
    strips = sum(stage.row_bytes * height for stage, height in zip(stages, heights, strict=False))
    first = stages[0].window.rows(heights[0]) * stages[0].x_row_bytes
    touched = strips + first + rows * stages[-1].row_bytes
    weights = sum(stage.weight_bytes for stage in stages)
    if touched > target.l2_bytes / 2:
        return float("inf")
    cycles = count * len(stages) * target.member
    for maker, reader in pairwise(stages):
        cycles += (count - 1) * reader.window.overlap * maker.row_bytes / target.copy_rate
    if touched + weights > target.l2_bytes * target.shares.strips:
        cycles += (count - 1) * weights * target.direct.exposed / target.far_rate
    return cycles
