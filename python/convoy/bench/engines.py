"""The engines that can be timed.  To add one: a class with these four methods, a line in ``ENGINES``.

An engine lives in a process of its own (``worker.py``), which is made with ``environment``
set, so that thread pools read it before they start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from convoy.bench.inputs import Arrays
from convoy.errors import ModelError

_PACKAGE = Path(__file__).parents[1]

Progress = Callable[[str], None]
"""Receives one line about what an engine does while it loads."""


@dataclass(frozen=True)
class Job:
    """What every engine of one measurement is given."""

    model: Path
    """ONNX file."""
    inputs: Arrays
    """By name, in the model's order."""
    threads: int
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Shapes given for symbolic inputs."""


class Engine(Protocol):
    """One way to run a model."""

    def load(self, job: Job, progress: Progress) -> None:
        """Compile or read the model, and keep the inputs."""

    def run(self) -> None:
        """Run once on the inputs; this is what is timed."""

    def outputs(self) -> list[NDArray[np.float32]]:
        """What ``run`` computed, in the model's order."""


class OnnxRuntime:
    """ONNX Runtime on the CPU, all its graph optimisations on (its default)."""

    def load(self, job: Job, progress: Progress) -> None:
        try:
            import onnxruntime as ort
        except ImportError:
            raise ModelError(
                "bench",
                "onnxruntime",
                "expected the package, got an import error",
                "pip install onnxruntime",
            ) from None
        options = ort.SessionOptions()
        options.intra_op_num_threads = job.threads
        options.log_severity_level = 3
        progress("optimising")
        self._session = ort.InferenceSession(str(job.model), options, ["CPUExecutionProvider"])
        self._inputs = job.inputs

    def run(self) -> None:
        self._outputs = self._session.run(None, self._inputs)

    def outputs(self) -> list[NDArray[np.float32]]:
        return list(self._outputs)


class _VirtualMachine:
    """A library exported from TVM, in TVM's virtual machine."""

    def sources(self) -> list[Path]:
        """Files of Convoy that the library depends on."""
        raise NotImplementedError

    def build(self, job: Job, progress: Progress) -> Any:
        raise NotImplementedError

    def load(self, job: Job, progress: Progress) -> None:
        from convoy.bench.exports import exported_library
        from convoy.deploy.runner import Runner

        settings = f"{type(self).__name__} threads={job.threads} shapes={sorted(job.shapes.items())}"
        library = exported_library(
            job.model.read_bytes(), settings, self.sources(), lambda: self.build(job, progress)
        )
        progress("loading the library")
        self._runner = Runner(library)
        self._runner.bind(list(job.inputs.values()))

    def run(self) -> None:
        self._value = self._runner.call()

    def outputs(self) -> list[NDArray[np.float32]]:
        from convoy.deploy.runner import arrays

        return arrays(self._value)


class Convoy(_VirtualMachine):
    """Convoy, through TVM's virtual machine as a user would call it."""

    def sources(self) -> list[Path]:
        from convoy.toolchain.compiler import kernel_include_dirs

        return [_PACKAGE, *kernel_include_dirs()]

    def build(self, job: Job, progress: Progress) -> Any:
        import convoy

        return convoy.compile(job.model, threads=job.threads, shapes=job.shapes, progress=progress)


class PlainTvm(_VirtualMachine):
    """TVM's own default pipeline on the same module."""

    def sources(self) -> list[Path]:
        return [_PACKAGE / "relax" / "baseline.py", *sorted(_PACKAGE.glob("relax/importer*"))]

    def build(self, job: Job, progress: Progress) -> Any:
        from convoy.relax.baseline import compile_plain

        progress("compiling (plain TVM takes a minute)")
        return compile_plain(job.model, job.shapes)


ENGINES: dict[str, type[Engine]] = {"convoy": Convoy, "onnxruntime": OnnxRuntime, "tvm": PlainTvm}


def environment(threads: int) -> dict[str, str]:
    """Variables that give every engine's pool the same threads.

    ``TVM_BIND_THREADS=0``: TVM would pin the calling thread to one core.
    """
    count = str(threads)
    return {
        "OMP_NUM_THREADS": count,
        "CONVOY_NUM_THREADS": count,
        "TVM_NUM_THREADS": count,
        "TVM_BIND_THREADS": "0",
    }
