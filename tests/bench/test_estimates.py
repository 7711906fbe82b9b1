"""Estimated against measured time, step by step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from command import tiny_model
from convoy.bench.estimates import StepTime, by_kind, measure_steps
from convoy.bench.job import Job

X = np.ones((1, 3, 8, 8), np.float32)


def test_kinds_sum_their_steps_and_say_what_a_step_is_typically_off_by() -> None:
    steps = [
        StepTime("a", "direct", 1.0, 2.0),
        StepTime("b", "direct", 2.0, 1.0),
        StepTime("c", "direct", 4.0, 4.0),
        StepTime("d", "pool", 1.0, 9.0),
    ]
    pool, direct = by_kind(steps)
    assert (pool.kind, pool.steps, pool.measured) == ("pool", 1, 9.0)
    assert (direct.steps, direct.estimated, direct.measured) == (3, 7.0, 7.0)
    assert direct.error == pytest.approx(2.0)  # of 2, 1/2 and 1


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 2])
def test_every_step_of_a_model_is_measured_beside_its_estimate(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convoy.bench.estimates.SECONDS", 0.01)
    path = tmp_path / "tiny.onnx"
    onnx.save(tiny_model(batch=batch), path)
    job = Job(path, {"x": np.repeat(X, batch, 0)}, threads=1)
    steps = measure_steps(job)
    assert any(s.kind.startswith("direct") for s in steps)
    assert all(s.measured > 0 and s.estimated > 0 for s in steps)
