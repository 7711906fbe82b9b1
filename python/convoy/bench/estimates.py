"""The planner's estimates beside what its steps take: how far its model is off, and where.

Each region is compiled once more with its steps timed, and runs alone in this process.  An estimate
counts cycles at the clock the model was measured at; here it is scaled to the FMA peak that this
machine showed in the same run, so that only the model's own error is left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log
from statistics import median

import numpy as np

from convoy import target
from convoy.backend import load
from convoy.bench.job import Job
from convoy.bench.machine import Rates
from convoy.options import Options
from convoy.plan.estimate import nominal_flops
from convoy.toolchain.loader import batched_shape

SECONDS = 1.0
"""Given to each region, and at least ``RUNS`` runs."""
RUNS = 5


@dataclass(frozen=True)
class StepTime:
    """One step of a region."""

    step: str
    """What it computes."""
    kind: str
    """Its algorithm, or its op where there is only one."""
    estimated: float
    """Milliseconds, on a machine as fast as this one was."""
    measured: float
    """Milliseconds, of its fastest run; all threads met before and after it."""


@dataclass(frozen=True)
class KindTimes:
    """All steps of one kind."""

    kind: str
    steps: int
    estimated: float
    measured: float
    error: float
    """The factor a step is typically off by, up or down: of the median of |log(measured/estimated)|."""


def measure_steps(job: Job, rates: Rates) -> tuple[StepTime, ...]:
    """Every step of the model, in running order, region after region.

    Raises
    ------
    ConvoyError  as ``convoy.compile``
    """
    from convoy.relax.graphs import lower_model

    machine, options = target.host(), Options(threads=job.threads)
    scale = 1e3 * nominal_flops(machine, job.threads) / rates.flops
    found: list[StepTime] = []
    for graph in lower_model(job.model, job.shapes):
        region = load(graph, machine, options, timed=True)
        random = np.random.default_rng(0)
        shapes = [batched_shape(graph.tensors[name], graph.batch or 1) for name in graph.inputs]
        arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
        end, runs = time.perf_counter() + SECONDS, 0
        while runs < RUNS or time.perf_counter() < end:
            region(*arrays)
            runs += 1
        report = region.code.report
        for step, kind, estimate, seconds in zip(
            report.steps, report.kinds, report.estimates, region.step_seconds(), strict=True
        ):
            found.append(StepTime(step, kind, estimate * scale, 1e3 * seconds))
    return tuple(found)


def by_kind(steps: Sequence[StepTime]) -> list[KindTimes]:
    """The kinds, those that take longest first."""
    kinds: dict[str, list[StepTime]] = {}
    for step in steps:
        kinds.setdefault(step.kind, []).append(step)
    totals = [_total(kind, members) for kind, members in kinds.items()]
    return sorted(totals, key=lambda t: -t.measured)


def _total(kind: str, steps: Sequence[StepTime]) -> KindTimes:
    return KindTimes(
        kind,
        len(steps),
        sum(s.estimated for s in steps),
        sum(s.measured for s in steps),
        exp(median(abs(log(s.measured / s.estimated)) for s in steps)),
    )
