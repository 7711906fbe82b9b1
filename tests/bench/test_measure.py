"""Interleaved timing: each engine in its own process, the others stopped, outputs verified."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from command import tiny_model
from convoy.bench import engines, measure, worker
from convoy.bench.engines import Job, Progress
from convoy.bench.worker import Worker
from convoy.errors import ModelError


class Negate:
    """An engine that is wrong: it says where it runs, and negates its input."""

    def load(self, job: Job, progress: Progress) -> None:
        progress(f"threads {os.environ['TVM_NUM_THREADS']}")
        self.x = next(iter(job.inputs.values()))

    def run(self) -> None:
        if not self.x.size:
            raise RuntimeError("nothing to negate")

    def outputs(self) -> list[NDArray[np.float32]]:
        return [-self.x]


class Crash(Negate):
    def run(self) -> None:
        os._exit(7)


@pytest.fixture
def job() -> Job:
    return Job(Path("none.onnx"), {"x": np.ones((2, 3), np.float32)}, threads=3)


@pytest.fixture(autouse=True)
def engines_of_this_file(monkeypatch: pytest.MonkeyPatch) -> None:
    # fork: a spawned child would not see the engines added here
    monkeypatch.setattr(worker, "START", "fork")
    monkeypatch.setitem(engines.ENGINES, "negate", Negate)
    monkeypatch.setitem(engines.ENGINES, "crash", Crash)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny_model(), path)
    return path


def state_of(process: Worker) -> str:
    text = Path(f"/proc/{process._process.pid}/stat").read_text()
    return text.rpartition(")")[2].split()[0]


def test_a_worker_is_given_its_threads_and_leaves_the_parent_alone(job: Job) -> None:
    before, lines = dict(os.environ), []
    process = Worker("negate")
    try:
        process.load(job, lines.append)
        assert lines == ["threads 3"]
        assert len(process.run(2, 0.0)) == 2
        np.testing.assert_array_equal(process.outputs()[0], -np.ones((2, 3)))
    finally:
        process.close()
    assert dict(os.environ) == before


def test_a_paused_worker_is_stopped_and_still_ends(job: Job) -> None:
    process = Worker("negate")
    process.load(job, lambda _: None)
    process.pause()
    for _ in range(100):
        if state_of(process) == "T":
            break
        os.sched_yield()
    assert state_of(process) == "T"
    process.resume()
    assert process.run(1, 0.0)
    process.pause()
    process.close()
    assert not process._process.is_alive()


def test_what_an_engine_raises_arrives_as_one_error() -> None:
    process = Worker("negate")
    try:
        process.load(Job(Path("none.onnx"), {"x": np.ones(0, np.float32)}, threads=1), lambda _: None)
        with pytest.raises(ModelError, match="bench: negate: expected a run, got RuntimeError: nothing to"):
            process.run(1, 0.0)
    finally:
        process.close()


def test_an_engine_that_dies_is_an_error_not_a_hang(job: Job) -> None:
    process = Worker("crash")
    try:
        process.load(job, lambda _: None)
        with pytest.raises(ModelError, match="got exit code 7"):
            process.run(1, 0.0)
    finally:
        process.close()


def test_measure_gives_ratios_to_the_first_and_the_error_of_each(model: Path) -> None:
    first, second = measure.measure(model, ["onnxruntime", "onnxruntime"], threads=1, rounds=2)
    assert first.ratio == 1.0
    assert second.ratio > 0.0
    assert (first.rounds, second.rounds) == (2, 2)
    assert 0.0 < first.fastest <= first.milliseconds
    assert max(first.error, second.error) < 1e-5


def test_measure_wants_known_engines(model: Path) -> None:
    with pytest.raises(ModelError, match="engine 'abacus': expected one of convoy"):
        measure.measure(model, ["abacus"])
