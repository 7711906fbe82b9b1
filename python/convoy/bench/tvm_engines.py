"""Convoy and plain TVM: libraries exported once, run by TVM's virtual machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.bench.job import Job, Progress
from convoy.deploy.requests import Latencies, Load, Stream, measure_requests
from convoy.deploy.runtime import keep_torch_out
from convoy.options import Precision

_PACKAGE = Path(__file__).parents[1]


class _VirtualMachine:
    """A library exported from TVM, in TVM's virtual machine."""

    def __init__(self) -> None:
        keep_torch_out()
        from convoy.deploy import runner

        self._deploy = runner

    def sources(self) -> list[Path]:
        """Files of Convoy that the library depends on."""
        raise NotImplementedError

    def build(self, job: Job, progress: Progress) -> Any:
        """The ``tvm.relax.VMExecutable``."""
        raise NotImplementedError

    def prepare(self, job: Job, progress: Progress) -> Path:
        from convoy.deploy.exports import exported_library

        settings = (
            f"{type(self).__name__} threads={job.threads} shapes={sorted(job.shapes.items())} "
            f"precision={job.precision}"
        )
        return exported_library(job.model, settings, self.sources(), lambda: self.build(job, progress))

    def load(self, job: Job, artifact: Path) -> None:
        self._runner = self._deploy.Runner(artifact)
        self._inputs = list(job.inputs.values())
        self._request: Callable[[], Any] = self.open_stream()

    def open_stream(self) -> Stream:
        """What makes a request, in the thread that is to make it."""
        self._runner.bind(self._inputs)
        return self._runner.call

    def run(self) -> None:
        self._value = self._request()

    def serve(self, load: Load) -> Latencies:
        return measure_requests(self.open_stream, load)

    def outputs(self) -> list[NDArray[np.float32]]:
        return self._deploy.arrays(self._value)


class Convoy(_VirtualMachine):
    """Convoy, through TVM's virtual machine as a user would call it."""

    def precision(self, job: Job) -> Precision:
        """What its options ask for."""
        return "bf16" if job.precision == "bf16" else "float32"

    def sources(self) -> list[Path]:
        from convoy.deploy.exports import sources_of_libraries

        return sources_of_libraries()

    def build(self, job: Job, progress: Progress) -> Any:
        import convoy

        return convoy.compile(
            job.model, threads=job.threads, shapes=job.shapes, precision=self.precision(job),
            progress=progress,
        )  # fmt: skip


class ConvoyFloat32(Convoy):
    """Convoy in float32, whatever the precision of the others."""

    def precision(self, job: Job) -> Precision:
        return "float32"


class ConvoySingle(Convoy):
    """Convoy compiled for one image, the images of the batch one after the other."""

    def build(self, job: Job, progress: Progress) -> Any:
        import convoy
        from convoy.bench.batch import set_batch
        from convoy.bench.inputs import read_model

        model = read_model(job.model)
        set_batch(model, 1)
        shapes = {name: (1, *shape[1:]) for name, shape in job.shapes.items()}
        return convoy.compile(
            model, threads=job.threads, shapes=shapes, precision=self.precision(job), progress=progress
        )

    def open_stream(self) -> Stream:
        batch = len(self._inputs[0])
        images = [[array[i : i + 1] for array in self._inputs] for i in range(batch)]

        def request() -> list[Any]:
            values = []
            for image in images:
                self._runner.bind(image)
                values.append(self._runner.call())
            return values

        return request

    def outputs(self) -> list[NDArray[np.float32]]:
        images = [self._deploy.arrays(value) for value in self._value]
        return [np.concatenate(parts) for parts in zip(*images, strict=True)]


class PlainTvm(_VirtualMachine):
    """TVM's own default pipeline on the same module."""

    def sources(self) -> list[Path]:
        return [_PACKAGE / "relax" / "baseline.py", *sorted(_PACKAGE.glob("relax/importer*"))]

    def build(self, job: Job, progress: Progress) -> Any:
        from convoy.relax.baseline import compile_plain

        progress("compiling (plain TVM takes a minute)")
        return compile_plain(job.model, job.shapes)
