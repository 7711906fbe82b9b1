"""A runner takes arrays by name, in order, and where they lie; several runs go on at once."""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi

import convoy
from command import tiny_model
from convoy.deploy.runner import Runner
from convoy.deploy.tensors import lent
from convoy.errors import ModelError
from deploy.test_description import two_inputs


@pytest.fixture(scope="module")
def runner() -> Runner:
    return convoy.load(
        convoy.compile(two_inputs(), shapes={"left.1": (1, 3, 2, 4), "right/2": (1, 3, 2, 4)})
    )


@pytest.fixture
def given(rng: np.random.Generator) -> dict[str, np.ndarray]:
    image = (1, 3, 2, 4)
    return {
        "n": np.array([3, 4]),
        "right/2": rng.standard_normal(image).astype(np.float32),
        "left.1": rng.standard_normal(image).astype(np.float32),
    }


def test_inputs_by_name_or_in_order(runner: Runner, given: dict[str, np.ndarray]) -> None:
    for inputs in (given, [given["left.1"], given["right/2"], given["n"]]):
        total, both = runner.run(inputs)
        np.testing.assert_array_equal(total, given["left.1"] + given["right/2"])
        np.testing.assert_array_equal(both, [9, 16])
    n = given.pop("n")
    np.testing.assert_array_equal(runner.run(given, n=n)[1], [9, 16])
    assert [tensor.name for tensor in runner.inputs] == ["left.1", "right/2", "n"]
    assert [tensor.shape for tensor in runner.outputs] == [(1, 3, 2, 4), (2,)]
    assert "left.1: float32 [1, 3, 2, 4]; " in repr(runner)


def test_other_names_are_refused(runner: Runner, given: dict[str, np.ndarray]) -> None:
    del given["n"]
    with pytest.raises(
        ModelError, match=r"expected left.1, right/2, n, got right/2, left.1 \(missing: n\); give each"
    ):
        runner.run(given)
    with pytest.raises(
        ModelError, match=r"expected left.1, right/2, n, got .*, m \(missing: n; no input.*m\);"
    ):
        runner.run(given, m=np.zeros(2))
    with pytest.raises(ModelError, match="expected a list or names, got both"):
        runner.run([np.zeros(2)], n=np.zeros(2))
    with pytest.raises(ModelError, match=r"right/2: expected a NumPy array .* type str"):
        runner.run({**given, "right/2": "x", "n": np.zeros(2, np.int64)})  # type: ignore[dict-item]


def aligned(*shape: int, offset: int = 0) -> np.ndarray:
    """Ones at an address that is ``offset`` bytes past a multiple of 64."""
    memory = np.empty(4 * int(np.prod(shape)) + 128, np.uint8)
    start = -memory.ctypes.data % 64 + offset
    array = memory[start : start + 4 * int(np.prod(shape))].view(np.float32).reshape(shape)
    array[...] = 1
    return array


@pytest.mark.parametrize(("offset", "alignment", "shared"), [(0, 64, True), (16, 64, False), (16, 4, True)])
def test_memory_is_shared_where_it_is_aligned(offset: int, alignment: int, shared: bool) -> None:
    array = aligned(2, 3, offset=offset)
    tensor = lent("x", array, alignment)
    assert (tensor.data_ptr() == array.ctypes.data) == shared
    np.testing.assert_array_equal(np.from_dlpack(tensor), array)
    lender = tvm_ffi.from_dlpack(array)  # what lends by DLPack and is none of NumPy's
    assert (lent("x", lender, alignment).data_ptr() == array.ctypes.data) == shared


@pytest.mark.parametrize(
    "change",
    [lambda x: x[::-1], lambda x: x.T, lambda x: x.astype(">f4"), lambda x: x.setflags(write=False) or x],
    ids=["backwards", "transposed", "big-endian", "read-only"],
)
def test_other_memory_is_copied(change) -> None:
    array = change(aligned(2, 3))
    tensor = lent("x", array, 4)
    assert tensor.data_ptr() != array.ctypes.data
    np.testing.assert_array_equal(np.from_dlpack(tensor), array)


def test_inputs_are_as_they_were_and_answers_are_one_s_own() -> None:
    runner = Runner(convoy.compile(tiny_model()))
    x = aligned(1, 3, 8, 8, offset=4)
    (first,) = runner.run([x])
    (second,) = runner.run([x])
    first[...] = 7
    np.testing.assert_array_equal(x, 1)
    assert not np.shares_memory(first, second)
    assert second.max() < 7


@pytest.mark.slow
def test_runs_wait_in_a_queue_and_give_futures(rng: np.random.Generator) -> None:
    executable = convoy.compile(tiny_model(), disabled_ops="nn.softmax")  # TVM's own threads are there, too
    images = [rng.standard_normal((1, 3, 8, 8)).astype(np.float32) for _ in range(40)]
    expected = [Runner(executable).run([x])[0] for x in images]
    before = threading.active_count()
    with Runner(executable, streams=3) as runner:
        futures = [runner.run_async({"x": x}) for x in images]
        assert all(isinstance(future, Future) for future in futures)
        assert threading.active_count() <= before + 3
        for future, wanted in zip(futures, expected, strict=True):
            np.testing.assert_allclose(future.result()[0], wanted, rtol=1e-5)
        np.testing.assert_allclose(runner.run(x=images[0])[0], expected[0], rtol=1e-5)
        wrong = runner.run_async([np.zeros((1, 3, 8, 9), np.float32)])
        with pytest.raises(
            ModelError, match=r"x: expected float32 \[.*, 3, 8, 8\], got float32 \[1, 3, 8, 9\]; give"
        ):
            wrong.result()
    assert threading.active_count() == before
    np.testing.assert_allclose(runner.run_async(x=images[0]).result()[0], expected[0], rtol=1e-5)
    runner.close()


def test_threads_of_a_runner(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    convoy.compile(tiny_model()).export_library(str(path))
    cpus = os.sched_getaffinity(0)
    for given, expected in (({"streams": 2}, 1), ({"threads": 3}, 3)):
        runner = Runner(path, **given)
        assert runner._library.function("convoy_num_threads")() == expected
        assert os.sched_getaffinity(0) == cpus
        del runner
    for given in ({"streams": 0}, {"threads": -1}, {"streams": 1000}, {"streams": "2"}):
        with pytest.raises(ModelError, match="take another number"):
            Runner(path, **given)  # type: ignore[arg-type]
