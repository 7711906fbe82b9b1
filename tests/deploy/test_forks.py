"""A fork waits for runs that are under way, and a child waits for no threads that it does not have."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import median

import numpy as np
import pytest
from onnx import numpy_helper

import convoy
from convoy.deploy.export import export_library
from convoy.deploy.forks import Turn
from convoy.deploy.runner import Runner, load
from faults.child import run_in_child
from relax.importer.test_import_recurrent import make


def test_a_fork_waits_for_the_calls_of_other_threads() -> None:
    turn, calling, done = Turn(), threading.Event(), threading.Event()

    def call() -> None:
        with turn:
            calling.set()
            time.sleep(0.2)
            done.set()

    thread = threading.Thread(target=call)
    thread.start()
    calling.wait()
    child = os.fork()
    if child == 0:
        with turn, Turn():
            os._exit(0 if done.is_set() else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    with turn:  # and it is free again
        pass


def test_a_child_looks_names_up_that_another_thread_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    # the lock of imports, which that thread held, is nobody's in the child
    monkeypatch.delattr(convoy, "load", raising=False)
    assert convoy.load is load
    holding, end = threading.Event(), threading.Event()

    def hold() -> None:
        with convoy._importing:
            holding.set()
            end.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait()
    found = run_in_child(lambda: convoy.load.__name__, 60)
    end.set()
    thread.join()
    assert found.value == "load", found


def test_a_thread_may_fork_in_its_own_turn() -> None:
    # the twin, as a signal handler does: it has nobody to wait for
    with Turn() as _, Turn():
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_a_fork_goes_before_the_next_call() -> None:
    # locks are not fair: a thread that calls again and again kept a fork waiting for many calls
    turn, stop = Turn(), threading.Event()
    calls: list[int] = []
    waited: list[int] = []

    def call() -> None:
        while not stop.is_set():
            with turn:
                calls.append(sum(range(20000)))

    thread = threading.Thread(target=call)
    thread.start()
    for _ in range(10):
        before = len(calls)
        child = os.fork()
        waited.append(len(calls) - before)
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    stop.set()
    thread.join()
    assert median(waited) <= 3, waited  # now and then the other thread runs just before a fork asks


@pytest.fixture(scope="module")
def sequences(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with a loop of TVM's that threads share: a GRU that resets its state first."""
    path = tmp_path_factory.mktemp("forks") / "gru.so"
    export_library(convoy.compile(make("GRU", given=("b",)), threads=2), path)
    return path


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library with such a loop and without a region."""
    model = make("GRU", given=("b",))
    model.graph.node[0].op_type = "CumSum"
    del model.graph.node[0].attribute[:], model.graph.node[0].output[1:], model.graph.output[1:]
    model.graph.node[0].input[:] = ["x", "axis"]
    model.graph.initializer.append(numpy_helper.from_array(np.array(2), "axis"))
    path = tmp_path_factory.mktemp("forks") / "sums.so"
    export_library(convoy.compile(model, threads=2), path)
    return path


def test_a_child_runs_shared_loops_beside_no_region(sums: Path) -> None:
    runner, x = load(sums, threads=2), np.ones((7, 30000, 6), "float32")
    assert runner.description.shared_loops
    (answer,) = runner.run([x])
    found = run_in_child(lambda: runner.run([x])[0], 60)
    np.testing.assert_array_equal(found.value, answer)


@pytest.mark.slow
@pytest.mark.parametrize("streams", [1, 2])
def test_a_child_runs_loops_that_its_parent_shared_among_threads(streams: int, sequences: Path) -> None:
    # [7 steps, 3 sequences, 6]; TVM's threads and the streams' are not in the child
    x = np.random.default_rng(7).standard_normal((7, 3, 6)).astype("float32")

    def run_once(runner: Runner) -> list[np.ndarray]:
        with runner:
            return runner.run([x])

    def run_bound() -> np.ndarray:
        runner.bind([x])
        return runner.call()[0].numpy()

    runner = load(sequences, streams=streams)
    assert runner.description.shared_loops
    answer = runner.run([x])
    for call in (lambda: run_once(runner), lambda: run_once(load(sequences, streams=streams))):
        found = run_in_child(lambda call=call: run_in_child(call, 60), 120)  # a child's child, too
        assert found.kind == "done" == found.value.kind, found
        for got, wanted in zip(found.value.value, answer, strict=True):
            np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(run_in_child(run_bound, 60).value, answer[0])
    for got, wanted in zip(run_once(runner), answer, strict=True):  # the parent's go on
        np.testing.assert_array_equal(got, wanted)


ENDS = """
import os, sys, time
import numpy as np
from convoy.deploy.runner import load
library, how, shape = sys.argv[1], sys.argv[2], tuple(map(int, sys.argv[3].split(",")))
runner, x = load(library), np.ones(shape, "float32")
(answer, *_) = runner.run([x])
if how == "asleep":
    time.sleep(0.5)  # threads that wait for work spin a while before
child = os.fork()
if child == 0:
    if how == "ran":
        assert np.array_equal(runner.run([x])[0], answer)
    elif how == "loaded":
        assert np.array_equal(load(library).run([x])[0], answer)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.parametrize("how", ["at once", "asleep", "ran", "loaded"])
@pytest.mark.parametrize(("library", "shape"), [("sequences", "7,3,6"), ("sums", "7,30000,6")])
def test_a_child_ends_as_any_process(
    how: str, library: str, shape: str, request: pytest.FixtureRequest
) -> None:
    # it ended with TVM's pool, which joins threads that are not there: an abort, or never
    path = request.getfixturevalue(library)
    command = [sys.executable, "-c", ENDS, str(path), how, shape]
    group = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert group.communicate(timeout=60)[0] == "3\n"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group.pid, signal.SIGKILL)  # a child that hangs, too


@pytest.mark.parametrize(("threads", "workers"), [(1, []), (2, ["convoy"]), (3, ["convoy"] * 2)])
def test_loops_of_tvm_run_on_the_team_alone(threads: int, workers: list[str], sums: Path) -> None:
    code = (
        "import sys, numpy as np\n"
        "from pathlib import Path\n"
        "from convoy.deploy.runner import load\n"
        "tasks = lambda: {p.parent: p.read_text()[:-1] for p in Path('/proc/self/task').glob('*/comm')}\n"
        "x, before = np.ones((7, 30000, 6), 'float32'), tasks()\n"
        "runner = load(sys.argv[1], threads=int(sys.argv[2]))\n"
        "runner.run([x])\n"
        "print([name for task, name in tasks().items() if task not in before])\n"
    )
    command = [sys.executable, "-c", code, str(sums), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{workers}\n", done
