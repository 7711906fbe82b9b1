"""The peers: the job's precision as far as they have it, their fastest mode for its requests at once."""

from __future__ import annotations

import time
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.bench.job import Job, Progress
from convoy.bench.package import import_package
from convoy.deploy.requests import Latencies, Load, latencies_of, measure_requests
from convoy.errors import ModelError


class OnnxRuntime:
    """ONNX Runtime on the CPU, all its graph optimisations on (its default); on x86 it has no bf16.

    Several requests at once are runs of one session, by a thread each.
    """

    def __init__(self) -> None:
        self._ort = import_package("onnxruntime")

    def prepare(self, job: Job, progress: Progress) -> Path:
        return job.model

    def load(self, job: Job, artifact: Path) -> None:
        options = self._ort.SessionOptions()
        options.intra_op_num_threads = self.threads(job)
        options.log_severity_level = 4  # what it logs it raises, too, and shows names as they are
        self.configure(options)
        self._session = self._ort.InferenceSession(str(artifact), options, ["CPUExecutionProvider"])
        self._inputs = job.inputs

    def threads(self, job: Job) -> int:
        """Those of a run."""
        return job.threads

    def configure(self, options: Any) -> None:
        """Settings of the session beside the threads."""

    def run(self) -> None:
        self._outputs = self._session.run(None, self._inputs)

    def serve(self, load: Load) -> Latencies:
        return measure_requests(lambda: lambda: self._session.run(None, self._inputs), load)

    def outputs(self) -> list[NDArray[np.float32]]:
        return list(self._outputs)


class OnnxRuntimePassive(OnnxRuntime):
    """Its threads sleep where they would spin: the fair peer on a machine that is busy."""

    def configure(self, options: Any) -> None:
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")


class OnnxRuntimeLatency(OnnxRuntime):
    """Where others take several requests at once, one at a time on all threads: often its best."""

    def threads(self, job: Job) -> int:
        return job.threads * job.streams

    def serve(self, load: Load) -> Latencies:
        return super().serve(replace(load, streams=1))


class OpenVino:
    """OpenVINO on the CPU: in f32 or bf16, its default where the CPU has it.

    One request at a time: its latency mode, one stream.  Several: its throughput mode, and its own queue.
    """

    def __init__(self) -> None:
        self._package = import_package("openvino")
        self._core = self._package.Core()

    def prepare(self, job: Job, progress: Progress) -> Path:
        return job.model

    def load(self, job: Job, artifact: Path) -> None:
        model = self._core.read_model(str(artifact))
        shapes = {name: list(array.shape) for name, array in job.inputs.items()}
        model.reshape(shapes)
        compiled = self._core.compile_model(
            model,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": "bf16" if job.precision == "bf16" else "f32",
                "INFERENCE_NUM_THREADS": job.threads * job.streams,
                "PERFORMANCE_HINT": "LATENCY" if job.streams == 1 else "THROUGHPUT",
                "NUM_STREAMS": job.streams,
                **({"ENABLE_CPU_PINNING": True} if job.pin else {}),
            },
        )
        self._request = compiled.create_infer_request()
        self._queue: Any = self._package.AsyncInferQueue(compiled, job.streams) if job.streams > 1 else ()
        self._inputs = list(job.inputs.values())  # the tensors below share their memory
        for request in (self._request, *self._queue):
            for i, array in enumerate(self._inputs):
                request.set_input_tensor(i, self._package.Tensor(array, shared_memory=True))
        self._count = len(compiled.outputs)

    def run(self) -> None:
        self._request.infer()

    def serve(self, load: Load) -> Latencies:
        spans: list[tuple[float, float]] = []
        self._queue.set_callback(lambda request, start: spans.append((start, time.perf_counter())))
        for _ in range(load.warmup * load.streams):
            self._queue.start_async(userdata=0.0)
        self._queue.wait_all()
        spans.clear()
        count, end = 0, time.perf_counter() + load.seconds
        while count < load.iterations or time.perf_counter() < end:
            self._queue.get_idle_request_id()  # waits for one: what waits here is no request yet
            self._queue.start_async(userdata=time.perf_counter())
            count += 1
        self._queue.wait_all()
        return latencies_of(spans)

    def outputs(self) -> list[NDArray[np.float32]]:
        return [self._request.get_output_tensor(i).data.copy() for i in range(self._count)]


class Ncnn:
    """ncnn on the graph pnnx converts, Winograd and its packed layouts on (its default); bf16 as storage.

    It computes one image at a time: a batch is run image by image.
    """

    def __init__(self) -> None:
        self._ncnn = import_package("ncnn")

    def prepare(self, job: Job, progress: Progress) -> Path:
        from convoy.bench.pnnx import convert

        return convert(job, progress)

    def load(self, job: Job, artifact: Path) -> None:
        # the network is freed before its inputs: it may still hold them
        self._net = self._ncnn.Net()
        options = self._net.opt
        options.num_threads = job.threads
        options.use_vulkan_compute = False
        for setting in (
            "use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic",
            "use_bf16_packed", "use_bf16_storage",
        ):  # fmt: skip
            if hasattr(options, setting):  # their set changes with ncnn's version
                setattr(options, setting, "bf16" in setting and job.precision == "bf16")
        for what, code in (
            ("graph", self._net.load_param(str(artifact))),
            ("weights", self._net.load_model(str(artifact.with_suffix(".bin")))),
        ):
            if code != 0:
                layers = ", ".join(self._unknown_layers(artifact)) or "none it cannot name"
                raise ModelError(
                    "bench",
                    "ncnn",
                    f"expected a {what} it loads, got code {code} (layers it lacks: {layers})",
                    "leave ncnn out for this model",
                )
        self._shapes = job.outputs
        batches = {len(array) for array in job.inputs.values()}
        self._images = [
            [self._ncnn.Mat(np.ascontiguousarray(array[i])) for array in job.inputs.values()]
            for i in range(batches.pop())
        ]
        self._arrays = job.inputs

    def _unknown_layers(self, param: Path) -> list[str]:
        """Layer types of the converted graph that this ncnn does not have."""
        lines = param.read_text("utf-8").splitlines()[2:]
        types = sorted({line.split()[0] for line in lines if line.strip()})
        return [kind for kind in types if self._ncnn.layer_to_index(kind) < 0]

    def run(self) -> None:
        self._results = []
        for image in self._images:
            extractor = self._net.create_extractor()
            for i, array in enumerate(image):
                extractor.input(f"in{i}", array)
            self._results.append([extractor.extract(f"out{i}")[1] for i in range(len(self._shapes))])

    def outputs(self) -> list[NDArray[np.float32]]:
        found = []
        for i, shape in enumerate(self._shapes):
            whole = np.stack([np.array(result[i]) for result in self._results])
            # ncnn drops the batch and other axes of one
            found.append(whole.reshape(shape) if whole.size == prod(shape) else whole)
        return found
