"""Interleaved timing: every round runs each engine once, alone, so that drift hits all alike.

The machine's absolute speed changes from minute to minute; only ratios taken within one
measurement mean anything, so each round's ratio to the first engine is kept and their median
is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from convoy import target
from convoy.bench.accuracy import compare_outputs, reference_outputs
from convoy.bench.engines import ENGINES, Job, Progress
from convoy.bench.inputs import read_model, seeded_inputs
from convoy.bench.worker import Worker
from convoy.errors import ModelError

ROUND_SECONDS = 0.25
"""Time each engine is given in a round, and at least one run."""
SLOW_SECONDS = 1.0
"""An engine slower than this is timed in ``SLOW_ROUNDS`` rounds only."""
SLOW_ROUNDS = 2


@dataclass(frozen=True)
class Timing:
    """What one engine showed."""

    engine: str
    milliseconds: float
    """Median over rounds of the median run."""
    fastest: float
    """Milliseconds of the fastest run of all."""
    ratio: float
    """Median over rounds of its time over the first engine's in the same round."""
    rounds: int
    error: float
    """Largest error of its outputs over the reference's largest value."""


def measure(
    model: str | Path,
    engines: Sequence[str],
    *,
    threads: int = 0,
    rounds: int = 10,
    shapes: Mapping[str, Sequence[int]] | None = None,
    progress: Progress = lambda _: None,
) -> list[Timing]:
    """Time ``engines`` on ``model`` and verify their outputs.

    Parameters
    ----------
    model : ONNX file
    engines : names of ``ENGINES``; ratios are to the first
    threads : of each engine; 0: the physical cores
    rounds : at least 1
    shapes : of inputs with symbolic dimensions
    progress : receives a line about what happens
    Returns
    -------
    one Timing per engine, in the order given
    Raises
    ------
    ConvoyError  if an engine is not known, or fails
    """
    for name in engines:
        if name not in ENGINES:
            raise ModelError(
                "bench", f"engine {name!r}", f"expected one of {', '.join(ENGINES)}", "name one of them"
            )
    fixed = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    proto = read_model(model)
    job = Job(Path(model), seeded_inputs(proto, fixed), threads or target.host().cores, fixed)
    progress("reference: running ONNX Runtime without optimisations")
    reference = reference_outputs(proto, job.inputs)
    names = [output.name for output in proto.graph.output]
    workers = [Worker(name) for name in engines]
    try:
        errors, slow = [], []
        for worker in workers:
            worker.load(job, lambda text, name=worker.name: progress(f"{name}: {text}"))  # type: ignore[misc]
            (first,) = worker.run(1, 0.0)
            slow.append(first > SLOW_SECONDS)
            errors.append(_largest_error(names, worker.outputs(), reference))
            worker.pause()
        return _time(workers, errors, slow, rounds, progress)
    finally:
        for worker in workers:
            worker.close()


def _largest_error(
    names: Sequence[str], outputs: Sequence[NDArray[np.float32]], reference: Sequence[NDArray[np.float32]]
) -> float:
    return max(difference.relative for difference in compare_outputs(names, outputs, reference))


def _time(
    workers: Sequence[Worker],
    errors: Sequence[float],
    slow: Sequence[bool],
    rounds: int,
    progress: Progress,
) -> list[Timing]:
    medians: list[list[float]] = [[] for _ in workers]
    fastest = [float("inf") for _ in workers]
    for number in range(rounds):
        for i, worker in enumerate(workers):
            if slow[i] and number >= SLOW_ROUNDS:
                continue
            progress(f"round {number + 1} of {rounds}: {worker.name}")
            worker.resume()
            if not slow[i]:
                worker.run(1, ROUND_SECONDS / 4)  # warm-up: caches and clocks after the pause
            times = worker.run(1, ROUND_SECONDS)
            worker.pause()
            medians[i].append(median(times))
            fastest[i] = min(fastest[i], *times)
    return [
        Timing(
            engine=worker.name,
            milliseconds=1e3 * median(medians[i]),
            fastest=1e3 * fastest[i],
            ratio=median(own / first for own, first in zip(medians[i], medians[0], strict=False)),
            rounds=len(medians[i]),
            error=errors[i],
        )
        for i, worker in enumerate(workers)
    ]
