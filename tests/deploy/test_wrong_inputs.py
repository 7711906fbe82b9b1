"""What does not fit is said in the library's own words, through a runner and through a session alike."""

from __future__ import annotations

import copy
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import convoy
from command import run_convoy
from convoy.deploy.inputs import find_misfit
from convoy.deploy.runner import Runner
from convoy.errors import ModelError
from convoy.onnx import InferenceSession
from deploy.test_description import two_inputs

IMAGE = np.zeros((1, 3, 2, 4), np.float32)
COUNT = np.zeros(2, np.int64)
FIT = {"left.1": IMAGE, "right/2": IMAGE, "n": COUNT}
Run = Callable[[Mapping[str, Any]], Sequence[np.ndarray]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its height is open."""
    path = tmp_path_factory.mktemp("wrong") / "two.so"
    open_height = (1, 3, None, 4)
    shapes = {"left.1": open_height, "right/2": open_height}
    convoy.compile(two_inputs(), shapes=shapes).export_library(str(path))
    return path


@pytest.fixture(scope="module", params=["runner", "session of a library", "session of a model"])
def run(request: pytest.FixtureRequest, library: Path) -> Run:
    if request.param == "runner":
        return Runner(library).run
    session = InferenceSession(library if "library" in request.param else two_inputs())
    return lambda feed: session.run(None, feed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        (
            {"n": np.zeros(3, np.int64)},
            r"run: n: expected int64 \[2\], got int64 \[3\]; give it in this shape, or compile",
        ),
        (
            {"n": np.zeros(2, np.int32)},
            r"run: n: expected int64 \[2\], got int32 \[2\]; convert it to int64",
        ),
        (
            {"left.1": np.zeros((3, 2, 4), np.float32)},
            r"run: left.1: expected float32 \[1, 3, [hH], 4\], got float32 \[3, 2, 4\]; give it",
        ),
        (
            {"right/2": np.zeros((1, 3, 5, 4), np.float32)},
            r"right/2: expected float32 \[1, 3, ([hH]), 4\], with \1 = 2 as in left.1, got float32 "
            r"\[1, 3, 5, 4\]; give sizes that agree",
        ),
        (
            {"n": None},
            r"run: inputs: expected left.1, right/2, n, got left.1, right/2 \(missing: n\); give",
        ),
        ({"m": COUNT}, r"got left.1, right/2, n, m \(no input of the model: m\); give each"),
        ({"n": None, "m": COUNT}, r"got left.1, right/2, m \(missing: n; no input of the model: m\); give"),
    ],
    ids=["size", "dtype", "rank", "sizes that differ", "missing", "unknown", "both"],
)
def test_what_does_not_fit_is_named(run: Run, changed: Mapping[str, Any], problem: str) -> None:
    given = {name: array for name, array in {**FIT, **changed}.items() if array is not None}
    with pytest.raises(ModelError, match=problem) as raised:
        run(given)
    assert "Check failed" not in str(raised.value)
    assert run(FIT)[1].tolist() == [0, 0]


def test_inputs_in_order_are_counted(library: Path) -> None:
    with pytest.raises(ModelError, match=r"expected 3 \(left.1: .*; n: int64 \[2\]\), got 2; give each"):
        Runner(library).run([IMAGE, IMAGE])
    with pytest.raises(ModelError, match=r"expected 3 \(left.1: .*\), got 4; give each"):
        Runner(library).run([IMAGE, IMAGE, COUNT, COUNT])


def test_bound_inputs_are_checked_at_the_call(library: Path) -> None:
    runner = Runner(library)
    runner.bind([IMAGE, IMAGE, COUNT.astype(np.float32)])
    with pytest.raises(ModelError, match=r"run: n: expected int64 \[2\], got float32 \[2\]"):
        runner.call()


def test_a_path_that_is_no_text_is_named(library: Path, tmp_path: Path) -> None:
    # it was called a library of somebody else
    copy = tmp_path / os.fsdecode(b"n\xff.so")
    copy.write_bytes(library.read_bytes())
    with pytest.raises(ModelError, match="expected a path in UTF-8, got other bytes in its name") as error:
        Runner(copy)
    str(error.value).encode()


def test_versions_are_listed() -> None:
    sizes = (1, 3, (2, 4), 4)
    runner = Runner(convoy.compile(two_inputs(), shapes={"left.1": sizes, "right/2": sizes}))
    image = np.zeros((1, 3, 3, 4), np.float32)
    with pytest.raises(
        ModelError, match=r"one of the sizes left.1=1x3x2x4, right/2=1x3x2x4; .*, got left.1=1x3x3x4"
    ):
        runner.run([image, image, COUNT])
    wrong = np.zeros((1, 3, 2, 5), np.float32)
    with pytest.raises(ModelError, match=r"left.1: expected float32 \[1, 3, \?, 4\], got"):
        runner.run([wrong, wrong, COUNT])


def test_the_command_says_the_same(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "in.npz", **{**FIT, "n": np.zeros(5, np.int64)})
    ran = run_convoy(capsys, monkeypatch, "run", library, "-i", tmp_path / "in.npz")
    assert ran.code == 1
    assert ran.error_lines[0].startswith("error: run: n: expected int64 [2], got int64 [5]")


def test_a_list_takes_the_type_of_its_input(library: Path) -> None:
    session = InferenceSession(library)
    assert session.run(["9both"], {**FIT, "n": [2, 3]})[0].tolist() == [4, 9]
    with pytest.raises(ModelError, match="run: n: expected an array or numbers, got an object of type str"):
        session.run(None, {**FIT, "n": "two"})


def test_what_fits_has_no_misfit(library: Path) -> None:
    assert find_misfit(Runner(library).inputs, list(FIT.values())) is None


def test_an_array_of_more_than_memory_holds_is_one_line(run: Run) -> None:
    # one number, seen as many
    endless = np.lib.stride_tricks.as_strided(IMAGE, (1, 3, 2**44, 4), (0, 0, 0, 0))
    # a session of a model compiles it for the shape, and says so sooner
    problem = (
        r"left.1: expected (memory for a copy of 1x3x17592186044416x4 numbers|lengths below 2\^31), got"
    )
    with pytest.raises(ModelError, match=problem):
        run({**FIT, "left.1": endless, "right/2": endless})


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_runner_is_not_copied(library: Path, take: Callable[[Runner], Any]) -> None:
    runner = Runner(library)
    with pytest.raises(
        ModelError, match="expected to stay in its process, got pickled or copied; give other"
    ):
        take(runner)
    assert runner.run(FIT)
