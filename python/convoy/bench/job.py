"""What an engine is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from convoy.bench.inputs import Arrays
from convoy.deploy.requests import Latencies, Load
from convoy.onnx_file import Shapes

Progress = Callable[[str], None]
"""Receives one line about what an engine does."""


Precision = Literal["float32", "bf16", "int8"]
"""int8: of a network that is quantised on file; what else it has is computed in float32."""


@dataclass(frozen=True)
class Job:
    """What every engine of one measurement is given."""

    model: Path
    """ONNX file."""
    inputs: Arrays
    """By name, in the model's order."""
    threads: int
    """Threads of each run."""
    shapes: Shapes = field(default_factory=dict)
    """Shapes given for symbolic inputs."""
    outputs: tuple[tuple[int, ...], ...] = ()
    """Shapes of the outputs, for an engine that does not keep them."""
    precision: Precision = "float32"
    """What every engine may compute with, as far as it can."""
    cpu_time: bool = False
    """Time by the processor time of the process, not by the clock on the wall; for one thread."""
    streams: int = 1
    """Runs at once."""
    pin: bool = False
    """Keep each stream on a core of its own."""


class Engine(Protocol):
    """One way to run a model.  Making one imports its package and nothing more.

    ``prepare`` happens in a process of its own, which ends before another one loads what it left:
    a compiler's memory does not count as the engine's.
    """

    def prepare(self, job: Job, progress: Progress) -> Path:
        """Do what is done once, before shipping: compile or convert.  Gives the file to load."""

    def load(self, job: Job, artifact: Path) -> None:
        """Load what ``prepare`` left, and keep the inputs."""

    def run(self) -> None:
        """Run once on the inputs; this is what is timed."""

    def outputs(self) -> list[NDArray[np.float32]]:
        """What ``run`` computed, in the model's order."""


@runtime_checkable
class Serving(Protocol):
    """An engine that takes several requests at once."""

    def serve(self, load: Load) -> Latencies:
        """Make requests as the load says, on the inputs."""
