"""The planner's estimates beside what its steps take: how far its model is off, and where.

Each region is compiled once more with its steps timed, and runs alone in this process.  An estimate
counts cycles at the clock the model was measured at; here it is scaled to the best FMA peak that this
machine shows meanwhile, as the steps' are their best times, so that only the model's own error is left.
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
from convoy.bench.machine import Machine
from convoy.options import Options
from convoy.plan.clock import nominal_flops
from convoy.report.decision import RegionReport
from convoy.toolchain.loader import batched_shape

SECONDS = 2.0
"""Given to each region."""
PARTS = 8
"""Pieces that time is cut into, each after a look at the machine's peak and at least one run long."""


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


def measure_steps(job: Job) -> tuple[StepTime, ...]:
    """Every step of the model, in running order, region after region.

    Raises
    ------
    ConvoyError
        As ``convoy.compile``.
    """
    from convoy.relax.graphs import lower_model

    machine, options = target.host(), Options(threads=job.threads)
    probe, flops = Machine(job.threads), 0.0
    reports: list[tuple[RegionReport, list[float]]] = []
    for graph in lower_model(job.model, job.shapes):
        region = load(graph, machine, options, timed=True)
        random = np.random.default_rng(0)
        shapes = [batched_shape(graph.tensors[name], graph.batch or 1) for name in graph.inputs]
        arrays = [random.standard_normal(shape).astype(np.float32) for shape in shapes]
        for _ in range(PARTS):
            flops = max(flops, probe.best_flops())
            end = time.perf_counter() + SECONDS / PARTS
            region(*arrays)
            while time.perf_counter() < end:
                region(*arrays)
        reports.append((region.code.report, region.step_seconds()))
    scale = 1e3 * slowness(machine, job.threads, flops)
    return tuple(
        StepTime(step, kind, estimate * scale, 1e3 * seconds)
        for report, measured in reports
        for step, kind, estimate, seconds in zip(
            report.steps, report.kinds, report.estimates, measured, strict=True
        )
    )


def slowness(machine: target.Target, threads: int, flops: float) -> float:
    """By how much longer a planner's cycle is on a machine of which ``flops`` FLOP/s are the best."""
    return nominal_flops(machine, threads) / flops


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
