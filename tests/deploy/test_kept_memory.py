"""Calls of ever other sizes: the memory of those before does not stay for ever."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm_ffi
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import convoy
from convoy.deploy.pool import ELEMENTS, LENGTHS, Pool

ADDED = "(float[{}] x, float[1] y) => (float[{}] z) {{ z = Add(x, y) }}"
FILLED = "(int64[1] n) => (float[a] z) { z = ConstantOfShape(n) }"
BOTH = "(float[n] x, float[1] y) => (float[n] z, float[n] w) { z = Add(x, y) w = Mul(z, y) }"
MEGABYTE = 1 << 18
"""In floats."""


def load(graph: str) -> convoy.Runner:
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {graph}')
    return convoy.Runner(convoy.compile(model, threads=1))


def resident() -> int:
    """MB of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


@pytest.mark.parametrize("graph", [BOTH, FILLED])
def test_two_hundred_lengths_of_a_megabyte_leave_few_in_memory(graph: str) -> None:
    runner = load(graph)
    before = resident()
    for i in range(200):
        length = MEGABYTE + 1024 * i  # another page each
        inputs = (
            [np.array([length])]
            if graph == FILLED
            else [np.zeros(length, np.float32), np.ones(1, np.float32)]
        )
        assert runner.run(inputs)[0].shape == (length,)
    assert resident() - before < 80  # MB; it was 200 and more


class Counted(Pool):
    """How often the pool was emptied."""

    def __init__(self) -> None:
        super().__init__()
        self.emptied = 0

        def empty() -> None:
            self.emptied += 1

        self._empty = empty


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Counted]:
    made: list[Counted] = []

    def make() -> Counted:
        made.append(Counted())
        return made[-1]

    monkeypatch.setattr("convoy.deploy.runner.Pool", make)
    return made


def call(runner: convoy.Runner, length: int) -> None:
    runner.run([np.zeros(length, np.float32), np.ones(1, np.float32)])


def test_lengths_that_come_again_keep_their_memory(counted: list[Counted]) -> None:
    runner = load(ADDED.format("n", "n"))
    for _ in range(3):
        for length in range(1, 1 + LENGTHS):
            call(runner, length)
    assert counted[0].emptied == 0
    call(runner, 1 + LENGTHS)
    assert counted[0].emptied == 1


def test_few_large_ones_are_given_back_too(counted: list[Counted]) -> None:
    runner = load(ADDED.format("n", "n"))
    for length in (ELEMENTS, ELEMENTS, ELEMENTS + 1):
        call(runner, length)
    assert counted[0].emptied == 1


def test_known_sizes_are_not_looked_at(counted: list[Counted]) -> None:
    call(load(ADDED.format(5, 5)), 5)
    assert not counted


def test_a_runtime_without_the_function_keeps_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tvm_ffi, "get_global_func", lambda *_, **__: None)
    runner = load(ADDED.format("n", "n"))
    for length in range(1, 3 + LENGTHS):
        call(runner, length)


@I.ir_module
class Mixed:
    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tuple(R.Tensor(("n",), "float32"), R.Shape(["n"])):
        n = T.int64()
        with R.dataflow():
            y = R.exp(x)
            s = R.shape([n])
            R.output(y, s)
        return (y, s)


def test_an_answer_may_hold_what_is_no_tensor() -> None:
    runner = convoy.Runner(convoy.compile(Mixed, threads=1))
    runner.bind([np.zeros(3, np.float32)])
    y, s = runner.call()
    assert y.numpy().tolist() == [1, 1, 1]
    assert tuple(s) == (3,)
