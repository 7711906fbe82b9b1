"""Interleaved timing: each engine in its own process, the others stopped, outputs verified."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from command import tiny_model
from convoy.bench import engines, measure, worker
from convoy.bench.job import Job, Progress
from convoy.bench.text import format_blind
from convoy.bench.worker import Worker
from convoy.deploy.requests import Load
from convoy.errors import ModelError


class Negate:
    """An engine that is wrong: it says where it runs, and negates its input."""

    def prepare(self, job: Job, progress: Progress) -> Path:
        progress(f"threads {os.environ['TVM_NUM_THREADS']}, waiting {os.environ.get('OMP_WAIT_POLICY')}")
        return job.model

    def load(self, job: Job, artifact: Path) -> None:
        self.x = next(iter(job.inputs.values()))

    def run(self) -> None:
        if not self.x.size:
            raise RuntimeError("nothing to negate")

    def outputs(self) -> list[NDArray[np.float32]]:
        return [-self.x]


class Crash(Negate):
    def run(self) -> None:
        os._exit(7)


class Sleep(Negate):
    def run(self) -> None:
        time.sleep(0.05)


class Absent(Negate):
    def __init__(self) -> None:
        raise ModelError("bench", "absent", "expected the package, got an import error", "pip install it")


@pytest.fixture
def job() -> Job:
    return Job(Path("none.onnx"), {"x": np.ones((2, 3), np.float32)}, threads=3)


@pytest.fixture(autouse=True)
def engines_of_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    # fork: a spawned child would not see the engines added here
    monkeypatch.setattr(worker, "START", "fork")
    monkeypatch.setitem(engines.ENGINES, "negate", Negate)
    monkeypatch.setitem(engines.ENGINES, "crash", Crash)
    monkeypatch.setitem(engines.ENGINES, "absent", Absent)
    monkeypatch.setitem(engines.ENGINES, "sleep", Sleep)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


def state_of(process: Worker) -> str:
    text = Path(f"/proc/{process._process.pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0]


@pytest.fixture
def start() -> Iterator[Callable[[str, Job], Worker]]:
    """A worker with the model loaded."""
    started: list[Worker] = []

    def start_worker(name: str, job: Job) -> Worker:
        process = Worker(name)
        started.append(process)
        process.start(job.threads)
        process.load(job, job.model)
        return process

    yield start_worker
    for process in started:
        process.close()


def test_a_worker_is_given_its_threads_and_leaves_the_parent_alone(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.SETTINGS, "negate", {"OMP_WAIT_POLICY": "passive"})
    before, lines = dict(os.environ), list[str]()
    process = Worker("negate")
    try:
        process.start(job.threads)
        assert process.prepare(job, lines.append) == job.model
        assert lines == ["threads 3, waiting passive"]
        assert process.load(job, job.model) >= 0.0
        assert len(process.run(2, 0.0)) == 2
        np.testing.assert_array_equal(process.outputs()[0], -np.ones((2, 3)))
        memory = process.memory()
        assert 0 < memory.now <= memory.peak
    finally:
        process.close()
    assert dict(os.environ) == before


def test_a_paused_worker_is_stopped_and_still_ends(job: Job, start: Callable[[str, Job], Worker]) -> None:
    process = start("negate", job)
    process.pause()
    deadline = (
        time.monotonic() + 30
    )  # a signal is taken where the process next runs, on a busy machine late
    while state_of(process) != "T" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert state_of(process) == "T"
    process.resume()
    assert process.run(1, 0.0)
    process.pause()
    process.close()
    assert process._process.exitcode == 0, "it ended by itself, and removed what it had written"


def test_a_worker_in_the_middle_of_a_run_is_ended(
    start: Callable[..., Worker], job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_PATIENCE", 0.1)
    process = start("sleep", job)
    process._connection.send(("serve", Load(seconds=600.0)))
    process.close()
    assert process._process.exitcode == -9


def test_what_an_engine_raises_arrives_as_one_error(start: Callable[[str, Job], Worker]) -> None:
    process = start("negate", Job(Path("none.onnx"), {"x": np.ones(0, np.float32)}, threads=1))
    with pytest.raises(ModelError, match="bench: negate: expected a run, got RuntimeError: nothing to"):
        process.run(1, 0.0)


def test_an_engine_that_dies_is_an_error_not_a_hang(job: Job, start: Callable[[str, Job], Worker]) -> None:
    process = start("crash", job)
    with pytest.raises(ModelError, match="got exit code 7"):
        process.run(1, 0.0)


@pytest.mark.parametrize("cpu_time", [False, True])
def test_time_without_a_core_counts_on_the_wall_only(
    cpu_time: bool, job: Job, start: Callable[[str, Job], Worker]
) -> None:
    (seconds,) = start("sleep", replace(job, cpu_time=cpu_time)).run(1, 0.0)
    assert seconds < 0.02 if cpu_time else seconds >= 0.05


@pytest.mark.slow
def test_measure_gives_ratios_to_the_first_and_the_error_of_each(model: Path) -> None:
    result = measure.measure(model, ["onnxruntime", "onnxruntime"], threads=1, rounds=2, starts=1)
    first, second = result.timings
    assert first.ratio == 1.0
    assert second.ratio > 0.0
    assert (first.rounds, second.rounds) == (2, 2)
    assert 0.0 < first.fastest <= first.milliseconds
    assert first.spread >= 0.0
    assert max(first.error, second.error) < 1e-5
    assert not result.failures
    assert result.rates.flops > 1e8
    assert result.rates.bandwidth > 1e8
    (startup,) = result.startups
    assert min(startup.load, startup.first) > 0.0
    assert 0 < startup.before < startup.peak
    assert startup.artifact == model.stat().st_size


@pytest.mark.slow
def test_several_streams_are_compared_by_runs_a_second(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.ENGINES, "zeros", Zeros)
    names = ["onnxruntime", "onnxruntime-latency", "zeros"]
    result = measure.measure(model, names, threads=2, rounds=2, load=Load(streams=2, iterations=20))
    both, one = result.timings
    assert len(both.samples) == len(one.samples) == 20
    assert both.p50 <= both.p90 <= both.p99 <= max(both.samples)
    assert both.throughput > 0
    assert "takes several requests at once, got --streams 2" in result.failures["zeros"]


@pytest.mark.slow
def test_measure_leaves_weights_in_their_file(tmp_path: Path) -> None:
    # a message holds 2 GB at most: the reference reads the weights where they are
    path = tmp_path / "external.onnx"
    onnx.save(tiny_model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    result = measure.measure(path, ["onnxruntime"], threads=1, rounds=1)
    assert result.timings[0].error <= 1e-6
    assert result.work is not None


@pytest.mark.slow
def test_a_slow_engine_sits_out_the_rounds_after_its_last(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "SLOW_SECONDS", 0.0)
    monkeypatch.setitem(engines.ENGINES, "again", engines.OnnxRuntime)
    lines: list[str] = []
    result = measure.measure(
        model, ["onnxruntime", "again"], threads=1, rounds=2, slow_runs=1, progress=lines.append
    )
    assert [timing.rounds for timing in result.timings] == [2, 1]
    rounds = [line for line in lines if line.startswith("round")]
    assert rounds == ["round 1 of 2: onnxruntime", "round 2 of 2: onnxruntime"]


def test_what_is_made_already_is_not_made_again(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.OnnxRuntime, "prepare", lambda *_: pytest.fail("it was made again"))
    result = measure.measure(model, ["onnxruntime"], threads=1, rounds=1, artifacts={"onnxruntime": model})
    assert result.timings[0].error < 1e-5


@pytest.mark.slow
def test_a_peer_that_cannot_is_said_not_dropped(model: Path) -> None:
    result = measure.measure(model, ["onnxruntime", "absent", "crash", "negate"], threads=1, rounds=1)
    assert [timing.engine for timing in result.timings] == ["onnxruntime"]
    assert "pip install it" in result.failures["absent"]
    assert "exit code 7" in result.failures["crash"]
    assert "shape" in result.failures["negate"]


@pytest.mark.slow
def test_the_first_engine_must_not_fail(model: Path) -> None:
    with pytest.raises(ModelError, match="pip install it"):
        measure.measure(model, ["absent", "onnxruntime"], threads=1, rounds=1)


def test_measure_wants_known_engines(model: Path) -> None:
    with pytest.raises(ModelError, match="engine 'abacus': expected one of convoy"):
        measure.measure(model, ["abacus"])


def test_a_quantised_network_has_no_float32_to_compare_with(model: Path) -> None:
    with pytest.raises(ModelError, match="engine 'convoy-float32': expected a network of floats"):
        measure.measure(model, ["convoy", "convoy-float32"], precision="int8")


def test_a_network_that_is_quantised_on_file_is_judged_as_that(tmp_path: Path) -> None:
    """Right engines differ by what a byte is worth: all of them were called wrong by 1e-2."""
    text = """<ir_version: 8, opset_import: ["" : 17]> rounded (float[4] x) => (float[4] y) {
        s = Constant <value_float = 0.1> () z = Constant <value = uint8 {3}> ()
        q = QuantizeLinear (x, s, z) y = DequantizeLinear (q, s, z)
    }"""
    path = tmp_path / "rounded.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    with pytest.raises(ModelError, match="engine 'convoy-float32': expected a network of floats"):
        measure.measure(path, ["convoy", "convoy-float32"])


class Zeros(Negate):
    """Right where an output is dead, and only there."""

    def load(self, job: Job, artifact: Path) -> None:
        super().load(job, artifact)
        self.shapes = job.outputs

    def outputs(self) -> list[NDArray[np.float32]]:
        return [np.zeros(shape, np.float32) for shape in self.shapes]


def relu_of(model: onnx.ModelProto, shift: float) -> onnx.ModelProto:
    """The ReLU of its output, shifted."""
    last = model.graph.output[0].name
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(shift), "shift"))
    model.graph.node.append(onnx.helper.make_node("Add", [last, "shift"], ["shifted"]))
    model.graph.node.append(onnx.helper.make_node("Relu", ["shifted"], ["y"]))
    model.graph.output[0].name = "y"
    return model


@pytest.mark.slow
def test_a_dead_output_is_said_and_inner_tensors_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(engines.ENGINES, "zeros", Zeros)
    path = tmp_path / "dead.onnx"
    onnx.save(relu_of(tiny_model(softmax=False), -1e3), path)
    result = measure.measure(path, ["onnxruntime", "zeros"], threads=1, rounds=1)
    assert result.blind == {"y": "one value throughout"}
    assert result.inner[-1] == "shifted"
    right, wrong = result.timings
    assert right.error < 1e-5
    assert wrong.error > 0.1
    assert "that it agrees proves nothing; inner tensors compared" in format_blind(result)


@pytest.mark.slow
def test_an_output_that_varies_is_compared_alone(tmp_path: Path) -> None:
    path = tmp_path / "alive.onnx"
    onnx.save(relu_of(tiny_model(softmax=False), 0.0), path)
    result = measure.measure(path, ["onnxruntime"], threads=1, rounds=1)
    assert not result.blind
    assert not result.inner
    assert format_blind(result) == ""
