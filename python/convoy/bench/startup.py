"""Loading, the first run and memory, each time in a fresh process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from convoy.bench.job import Job, Progress
from convoy.bench.worker import Worker


@dataclass(frozen=True)
class Startup:
    """What one engine needs before its second run.  Medians over fresh processes."""

    engine: str
    load: float
    """Milliseconds of loading what was compiled or converted; the package is imported already."""
    first: float
    """Milliseconds of the first run."""
    peak: int
    """Largest memory of the process, in bytes, two runs later."""
    before: int
    """Memory before loading, in bytes: Python and the engine's package."""
    artifact: int
    """Bytes of the files it loads."""


def measure_startup(
    job: Job, artifacts: Mapping[str, Path], starts: int, progress: Progress
) -> tuple[Startup, ...]:
    """Start each engine ``starts`` times, in turns.

    Files come from the page cache: each engine has loaded its own before.

    Raises
    ------
    ConvoyError
        If an engine fails.
    """
    samples: dict[str, list[tuple[float, float, int, int]]] = {name: [] for name in artifacts}
    for number in range(starts):
        for name, artifact in artifacts.items():
            progress(f"start {number + 1} of {starts}: {name}")
            samples[name].append(_start(name, job, artifact))
    return tuple(
        Startup(
            name,
            1e3 * median(s[0] for s in taken),
            1e3 * median(s[1] for s in taken),
            int(median(s[2] for s in taken)),
            int(median(s[3] for s in taken)),
            _size(artifacts[name]),
        )
        for name, taken in samples.items()
    )


def _start(name: str, job: Job, artifact: Path) -> tuple[float, float, int, int]:
    worker = Worker(name)
    try:
        worker.start(job.threads)
        before = worker.memory().now
        load = worker.load(job, artifact)
        (first,) = worker.run(1, 0.0)
        worker.run(2, 0.0)
        return load, first, worker.memory().peak, before
    finally:
        worker.close()


def _size(artifact: Path) -> int:
    """Bytes of a file, and of ncnn's weights beside it."""
    weights = artifact.with_suffix(".bin")
    return artifact.stat().st_size + (weights.stat().st_size if weights.is_file() else 0)
