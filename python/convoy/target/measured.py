"""What a probe may find out about a machine, and what that changes of its row.

A figure counts only where it is far off, and then by a power of two: what a probe reads
depends on the minute, and two probes of one machine have to give one plan.
"""

from __future__ import annotations

from dataclasses import fields, replace
from math import log2

from convoy.target.figures import Figures
from convoy.target.target import Target

_UNITS_OFF = 1.8
"""Units of a core that does not have the row's read at most half of them; where another hardware thread
takes its turns, 0.65 of the multiply-adds was read, and down to half of the loads: narrow loads alone,
which no core has beside wide multiply-adds, are a neighbour's."""
_RATE_OFF = 2.5
"""What neighbours on the same memory take of a rate is less than that."""
_BARRIER_OFF = 5.0
"""The cores of a virtual machine are one real core's threads at one time, and apart at another: 165 and
1100 cycles were read on one (Zen 5)."""
_MOST_OFF = 8.0
"""Further off than that, a figure says nothing of the machine but that something went wrong."""


def apply_figures(target: Target, found: Figures) -> tuple[Target, str]:
    """The target with what was measured of it, and what that was, in words."""
    expected = replace(
        target.expected, clock=target.clock, fma_units=target.fma_units, load_units=target.load_units
    )
    ratios = {f.name: _ratio(getattr(found, f.name), getattr(expected, f.name)) for f in fields(Figures)}
    wrong = [name for name, ratio in ratios.items() if not 1 / _MOST_OFF <= ratio <= _MOST_OFF]
    if wrong:
        read = ", ".join(f"{name} {getattr(found, name):.3g}" for name in wrong)
        return target, f"the figures of its row: a probe read {read}, which cannot be"
    units = {
        name: max(1, round(getattr(found, name)))
        if _is_off(ratios[name], _UNITS_OFF)
        else getattr(target, name)
        for name in ("fma_units", "load_units")
    }
    classes = {
        name: 2.0 ** int(log2(ratios[name])) if _is_off(ratios[name], most) else 1.0
        for name, most in (("l2", _RATE_OFF), ("memory", _RATE_OFF), ("barrier", _BARRIER_OFF))
    }
    if units["fma_units"] == target.fma_units:
        units["load_units"] = target.load_units
    vector = 4 * target.lanes
    measured = replace(
        target,
        fma_pipe_bytes=vector * units["fma_units"] // target.fma_pipes
        if units["fma_units"] != target.fma_units else target.fma_pipe_bytes,
        load_pipe_bytes=vector * units["load_units"] // target.load_pipes
        if units["load_units"] != target.load_units else target.load_pipe_bytes,
        copy_rate=target.copy_rate * classes["l2"], cached_rate=target.cached_rate * classes["l2"],
        between_cores_rate=target.between_cores_rate * classes["l2"],
        stream_rate=target.stream_rate * classes["memory"], far_rate=target.far_rate * classes["memory"],
        memory_rate=target.memory_rate * classes["memory"],
        barrier=target.barrier * classes["barrier"], step=target.step * classes["barrier"],
        team=target.team * classes["barrier"],
    )  # fmt: skip
    off = [
        f"{count} {name.replace('_', ' ')}"
        for name, count in units.items()
        if count != getattr(target, name)
    ]
    off += [f"{name} × {factor:g}" for name, factor in classes.items() if factor != 1]
    return measured, f"measured beside its row: {', '.join(off)}" if off else "measured as its row says"


def _is_off(ratio: float, by: float) -> bool:
    return not 1 / by < ratio < by


def _ratio(found: float, expected: float) -> float:
    """0 for what is no number."""
    return found / expected if 0 < found < float("inf") else 0.0
