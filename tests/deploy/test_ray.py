"""``Predictor`` on a real Ray: an actor that is killed loses no row, and the example runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convoy
from command import tiny_model
from convoy.deploy.predictor import Predictor
from pages import ROOT

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install '.[ray]' in .venv to run these")
pytestmark = pytest.mark.slow

ROWS, BATCH = 96, 8


@pytest.fixture(scope="module", autouse=True)
def two_actors_and_a_reader() -> Iterator[None]:
    ray.init(num_cpus=3, include_dashboard=False)
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ray") / "tiny.so"
    convoy.compile(tiny_model(batch="N")).export_library(str(path))
    return path


def test_an_actor_that_is_killed_loses_no_row_and_doubles_none(library: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"

    class Mortal(Predictor):
        def __call__(self, batch: Any) -> dict[str, Any]:
            if ROWS // 2 in batch["id"] and not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            threads = self._runner._library.function("convoy_num_threads")()
            return {**super().__call__(batch), "threads": np.full(len(batch["id"]), threads)}

    def images(batch: dict[str, Any]) -> dict[str, Any]:
        rows = [np.random.default_rng(i).random((3, 8, 8), np.float32) for i in batch["id"]]
        return {"id": batch["id"], "image": np.stack(rows)}

    rows = ray.data.range(ROWS).map_batches(images, batch_size=BATCH)
    answers = rows.map_batches(
        Mortal,
        fn_constructor_kwargs={"library": str(library), "columns": {"x": "image"}},
        compute=ray.data.ActorPoolStrategy(size=2),
        num_cpus=1,
        batch_size=BATCH,
    )
    every = answers.take_all()
    found = {row["id"]: row for row in every}
    assert killed.exists()
    assert len(every) == len(found) == ROWS
    assert {row["threads"] for row in every} == {1}
    alone = Predictor(library)({"x": images({"id": np.arange(ROWS)})["image"]})["y0_softmax"]
    np.testing.assert_allclose([found[i]["y0_softmax"] for i in range(ROWS)], alone, rtol=1e-5)


def test_the_example_classifies_a_folder(library: Path, tmp_path: Path) -> None:
    pillow = pytest.importorskip("PIL.Image", reason="Pillow, of the extra 'image', is not installed")
    (tmp_path / "images").mkdir()
    for i in range(5):
        pixels = np.random.default_rng(i).integers(0, 255, (20 + i, 30, 3), dtype=np.uint8)
        pillow.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    example = ROOT / "examples/ray_images.py"
    command = [sys.executable, example, library, "images", "answers", "--ray-cpus", "3"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines()[-1:] == ["answers: 5"], done.stderr
