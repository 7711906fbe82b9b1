"""What is on the page of a study: each model with its engines, and which are wrong or cannot run it.

Where its steps were timed, too (``--estimates``), each has a bar, beside the planner's estimate.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convoy.bench.estimates import StepTime
from convoy.bench.measure import Measurement, Timing
from convoy.bench.study import Study, score
from convoy.bench.text import (
    format_blind,
    format_bounds,
    format_ms,
    format_others,
    format_ratio,
    format_spread,
)
from convoy.report.decision import count_of


def study_content(study: Study) -> dict[str, Any]:
    """The content of the page (``report/pages/page.py``)."""
    names = [Path(model).name for model in (*study.results, *study.failures)]
    return {
        "title": f"convoy bench: {', '.join(names)}"
        if len(names) < 4
        else f"convoy bench: {len(names)} models",
        "summary": [
            f"{study.date} UTC, {study.cpu}, {study.threads} threads; load {study.load[0]:.1f} before, "
            f"{study.load[1]:.1f} after",
            study.command,
            ", ".join(f"{package} {version}" for package, version in study.versions.items()),
            *(f"{model}: {reason}" for model, reason in study.failures.items()),
        ],
        "left": [],
        "nodes": [],
        "edges": [],
        "besides": [],
        "regions": [],
        "roof": None,
        "engines": [
            {
                "model": Path(model).name,
                "lines": list(_describe(measurement)),
                "steps": [_describe_step(step) for step in measurement.steps],
                "engines": [
                    *(_describe_timing(timing, measurement.bound) for timing in measurement.timings),
                    *(
                        {"engine": engine, "seconds": None, "wrong": False, "text": "cannot", "more": why}
                        for engine, why in measurement.failures.items()
                    ),
                ],
            }
            for model, measurement in study.results.items()
        ],
    }


def _describe(measurement: Measurement) -> Iterator[str]:
    found = score(measurement)
    if found.peer:
        yield f"{found.peer} is the best peer: {format_ratio(found.ratio)} × Convoy's time"
    yield format_bounds(measurement)
    yield from filter(None, (format_blind(measurement), format_others(measurement)))


def _describe_timing(timing: Timing, bound: float) -> dict[str, Any]:
    wrong = not timing.error <= bound
    return {
        "engine": timing.engine,
        "seconds": timing.milliseconds / 1e3,
        "wrong": wrong,
        "text": f"{format_ms(timing.milliseconds)} ms, {timing.ratio:.2f} ×",
        "more": (f"wrong outputs, error {timing.error:.1e}: " if wrong else "")
        + (f"half of the rounds within {format_spread(timing)}, " if timing.rounds > 1 else "")
        + f"fastest {format_ms(timing.fastest)} ms, p50 {format_ms(timing.p50)} ms, "
        f"p90 {format_ms(timing.p90)} ms, p99 {format_ms(timing.p99)} ms, "
        f"{timing.throughput:.1f} runs/s, {count_of(timing.rounds, 'round')}",
    }


def _describe_step(step: StepTime) -> dict[str, Any]:
    """One bar, in the form of a node of the other pages."""
    return {
        "ops": [],
        "label": step.step,
        "text": f"{step.kind}: {step.step}",
        "estimate": step.estimated / 1e3,
        "measured": step.measured / 1e3,
    }
