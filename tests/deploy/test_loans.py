"""Large outputs are handed out in TVM's own memory; whose memory may be another's, too, is copied."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import onnx
import pytest

import convoy
from convoy.deploy import loans
from convoy.deploy.forks import Turn

SIZE = loans.LEAST_BYTES // 4
WEIGHTS = f"<float[{SIZE}] c = {{{', '.join(map(str, range(SIZE)))}}}>"


def load(graph: str, size: int | str = SIZE, weights: str = "") -> convoy.Runner:
    outputs, body = graph.replace("[S]", f"[{size}]").replace("[1, S]", f"[1, {size}]").split("{", 1)
    text = f'<ir_version: 9, opset_import: ["": 18]> g (float[{size}] x) => {outputs} {weights} {{{body}'
    return convoy.Runner(convoy.compile(onnx.parser.parse_model(text), threads=1))


def lie_in_tvm(arrays: list[np.ndarray]) -> list[bool]:
    return [type(array.base).__name__ == "_Loan" for array in arrays]


@pytest.mark.parametrize(
    ("graph", "lent"),
    [
        ("(float[S] y) { y = Sin(x) }", [True]),
        ("(float[S] y, float[S] z) { y = Sin(x) z = Relu(y) }", [True, True]),
        ("(float[1, S] y) { a = Constant<value_ints = [1, -1]> () z = Sin(x) y = Reshape(z, a) }", [True]),
        (
            "(float[S] y, float[1, S] z) { y = Sin(x)"
            " a = Constant<value_ints = [0]> () z = Unsqueeze(y, a) }",
            None,
        ),
        ("(float[S] y, float[S] z) { y = Sin(x) z = Identity(y) }", None),
        ("(float[S] y) { y = Identity(x) }", None),
        ("(float[1, S] y) { a = Constant<value_ints = [0]> () y = Unsqueeze(x, a) }", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [SIZE, "n"])
def test_a_caller_may_write_to_what_it_gets(graph: str, lent: list[bool] | None, size: int | str) -> None:
    runner, x = load(graph, size), np.linspace(-1, 1, SIZE, dtype=np.float32)
    found = runner.run([x])
    if lent is not None:
        assert lie_in_tvm(found) == lent
    expected = [array.copy() for array in found]
    for i, array in enumerate(found):
        array[...] = i + 7  # neither the input, nor the other, nor the next call's
    assert all((array == i + 7).all() for i, array in enumerate(found))
    np.testing.assert_array_equal(x, np.linspace(-1, 1, SIZE, dtype=np.float32))
    for again, before in zip(runner.run([x]), expected, strict=True):
        np.testing.assert_array_equal(again, before)


def test_a_constant_is_copied() -> None:
    runner = load("(float[S] y, float[S] z) { y = Identity(c) z = Sin(x) }", weights=WEIGHTS)
    x = np.zeros(SIZE, np.float32)
    found = runner.run([x])
    assert lie_in_tvm(found) == [False, True]
    found[0][...] = -1
    np.testing.assert_array_equal(runner.run([x])[0], np.arange(SIZE, dtype=np.float32))


def test_a_small_output_is_copied() -> None:
    (found,) = load("(float[S] y) { y = Sin(x) }", SIZE - 1).run([np.zeros(SIZE - 1, np.float32)])
    assert lie_in_tvm([found]) == [False]


@pytest.mark.slow
def test_what_is_kept_stays_and_outlives_its_runner() -> None:
    runner = load("(float[S] y) { y = Neg(x) }")
    kept = [runner.run([np.full(SIZE, i, np.float32)])[0] for i in range(20)]
    del runner
    gc.collect()
    for i, array in enumerate(kept):
        np.testing.assert_array_equal(array, np.full(SIZE, -i, np.float32))


def test_memory_goes_back_in_a_call_and_not_before() -> None:
    runner, x = load("(float[S] y) { y = Neg(x) }"), np.zeros(SIZE, np.float32)
    runner.run([x])
    waiting = len(loans._returned)
    (kept,) = runner.run([x])
    part = kept[3:5]
    del kept
    assert not loans._returned  # the call before this took them; a view keeps its own
    del part
    assert len(loans._returned) == waiting == 1
    runner.run([x])
    assert len(loans._returned) == 1  # its own, which died since


def test_a_fork_meets_no_thread_that_frees(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[bool] = []
    runner, x = load("(float[S] y) { y = Neg(x) }"), np.zeros(SIZE, np.float32)
    turns = []
    enter, leave = Turn.__enter__, Turn.__exit__
    monkeypatch.setattr(Turn, "__enter__", lambda turn: (enter(turn), turns.append(turn))[0])
    monkeypatch.setattr(Turn, "__exit__", lambda turn, *_: (turns.pop(), leave(turn))[1])
    monkeypatch.setattr("convoy.deploy.runner.take_back", lambda: held.append(bool(turns)))
    runner.run([x])
    assert held == [True]


def test_threads_that_call_and_drop_get_their_own() -> None:
    runner = load("(float[S] y) { y = Neg(x) }")
    wrong: list[int] = []

    def call(number: int) -> None:
        x = np.full(SIZE, number, np.float32)
        for _ in range(50):
            (found,) = runner.run([x])
            if not (found == -number).all():
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.slow
def test_a_process_that_still_has_some_ends_well(tmp_path) -> None:
    path = tmp_path / "net.so"
    graph = f"(float[{SIZE}] x) => (float[{SIZE}] y) {{ y = Neg(x) }}"
    text = f'<ir_version: 9, opset_import: ["": 18]> g {graph}'
    convoy.compile(onnx.parser.parse_model(text)).export_library(str(path))
    code = f"""
import numpy, convoy
runner = convoy.load({str(path)!r})
kept = [runner.run([numpy.zeros({SIZE}, numpy.float32)])[0] for _ in range(3)]
kept.append(kept)  # a circle, which the end of the process collects
dead = runner.run([numpy.zeros({SIZE}, numpy.float32)])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
