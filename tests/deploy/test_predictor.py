"""A library called with columns of rows, as Ray Data calls it; Ray itself is not needed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convoy
from command import tiny_model
from convoy.deploy.predictor import Predictor
from convoy.errors import ModelError

ROW = (3, 8, 8)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[object, Path]:
    """The same network for any number of images, one image, and four."""
    folder = tmp_path_factory.mktemp("predictor")
    found = {batch: folder / f"{batch}.so" for batch in ("N", 1, 4)}
    for batch, path in found.items():
        convoy.compile(tiny_model(batch=batch)).export_library(str(path))
    return found


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((6, *ROW)).astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("batch", ["N", 1, 4])
@pytest.mark.parametrize("count", [6, 4, 1])
def test_each_row_has_its_answer(
    libraries: dict[object, Path], rows: np.ndarray, batch: object, count: int
) -> None:
    one = convoy.load(libraries[1])
    expected = np.concatenate([one.run([row[None]])[0] for row in rows[:count]])
    given = {"x": rows[:count], "path": np.array([f"{i}.jpg" for i in range(count)])}
    found = Predictor(libraries[batch])(given)
    assert list(found) == ["path", "y0_softmax"]
    np.testing.assert_array_equal(found["path"], given["path"])
    np.testing.assert_allclose(found["y0_softmax"], expected, rtol=1e-5)


@pytest.mark.parametrize("batch", ["N", 4])
def test_no_rows_give_none(libraries: dict[object, Path], rows: np.ndarray, batch: object) -> None:
    found = Predictor(libraries[batch])({"x": rows[:0]})["y0_softmax"]
    assert (found.shape, found.dtype) == ((0, 5), np.float32)


def test_rows_may_be_read_only_and_lie_anywhere(libraries: dict[object, Path], rows: np.ndarray) -> None:
    predictor = Predictor(libraries["N"])
    expected = predictor({"x": rows})["y0_softmax"]
    memory = np.frombuffer(b"\0" * 4 + rows.tobytes(), np.float32)[1:].reshape(rows.shape)
    assert not memory.flags.writeable
    np.testing.assert_array_equal(predictor({"x": memory})["y0_softmax"], expected)


def test_an_input_reads_the_column_that_is_named(libraries: dict[object, Path], rows: np.ndarray) -> None:
    found = Predictor(libraries["N"], columns={"x": "image"})({"image": rows, "x": np.arange(6)})
    np.testing.assert_array_equal(found["x"], np.arange(6))
    np.testing.assert_array_equal(found["y0_softmax"], Predictor(libraries["N"])({"x": rows})["y0_softmax"])


def test_columns_that_do_not_fit_are_refused(libraries: dict[object, Path], rows: np.ndarray) -> None:
    predictor = Predictor(libraries["N"])
    ragged = np.array([rows[0], None], dtype=object)
    for given, problem in (
        ({"image": rows}, "columns: expected a column x, got image; name the column of each input"),
        ({"x": ragged}, "column x: expected rows of one shape, got several shapes, or objects"),
        ({"x": rows, "y0_softmax": rows}, "expected other names than the outputs', got y0_softmax"),
        ({"x": rows[:, :2]}, r"x: expected float32 \[n, 3, 8, 8\], got float32 \[6, 2, 8, 8\]"),
    ):
        with pytest.raises(ModelError, match=problem):
            predictor(given)
    with pytest.raises(ModelError, match="columns: expected names of inputs, x, got data; write"):
        Predictor(libraries["N"], columns={"data": "image"})


def test_outputs_without_a_row_for_each_image_are_refused() -> None:
    images = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])]
    total = [helper.make_tensor_value_info("total", TensorProto.FLOAT, [1, 1])]
    graph = helper.make_graph([helper.make_node("ReduceSum", ["x"], ["total"])], "sum", images, total)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    predictor = Predictor(convoy.compile(model))
    with pytest.raises(ModelError, match=r"outputs: expected a row for each of 2 images, got \[1, 1\]"):
        predictor({"x": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("resources", "actor", "threads"),
    [({"CPU": 2.0}, "ab12", 2), ({"CPU": 0.5}, "ab12", 1), ({}, "ab12", None), ({"CPU": 4.0}, None, None)],
    ids=["two", "a half", "none", "the driver"],
)
def test_threads_are_the_cpus_that_ray_gave(
    libraries: dict[object, Path],
    monkeypatch: pytest.MonkeyPatch,
    resources: dict[str, float],
    actor: str | None,
    threads: int | None,
) -> None:
    context = SimpleNamespace(
        get_task_id=lambda: actor, get_actor_id=lambda: actor, get_assigned_resources=lambda: resources
    )
    ray = SimpleNamespace(is_initialized=lambda: True, get_runtime_context=lambda: context)
    monkeypatch.setitem(sys.modules, "ray", ray)
    given: list[object] = []
    monkeypatch.setattr(
        "convoy.deploy.predictor.Runner",
        lambda library, threads: given.append(threads) or convoy.Runner(library, threads=threads),
    )
    Predictor(libraries["N"])
    Predictor(libraries["N"], threads=3)
    assert given == [threads, 3]


def test_ray_is_not_imported() -> None:
    code = (
        "import sys, convoy.deploy.predictor; assert 'ray' not in sys.modules and 'tvm' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
