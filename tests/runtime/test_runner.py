"""Arrays as they come, to a model's runner: converted where the value stays, refused by name elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tiny_region import make_region

from convoy.deploy.runner import Runner
from convoy.errors import ModelError

SHAPE = (1, 3, 8, 8)


@pytest.fixture
def runner(build):
    return Runner(build(make_region("convoy_runner", shape=SHAPE)))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: np.swapaxes(np.swapaxes(x, 1, 3).copy(), 1, 3),
        lambda x: x[:, ::-1][:, ::-1],
        lambda x: x.astype(">f4"),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(SHAPE),
    ],
    ids=["transposed", "twice-backwards", "big-endian", "misaligned-and-read-only"],
)
def test_same_values_in_other_memory_give_the_same(runner, change):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    np.testing.assert_array_equal(runner.run([change(x)])[0], runner.run([x])[0])


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([np.zeros(SHAPE, object)], r"run: input 0: expected an array of numbers, got dtype object"),
        ([np.zeros((1, 3, 8, 9), np.float32)], r"got float32 \[1, 3, 8, 9\].*param=x.*shape\[3\]"),
        ([np.zeros(SHAPE)], r"got float64 \[1, 3, 8, 8\].*param=x.*float32"),
        ([], r"got no inputs.*expects 1 arguments"),
    ],
    ids=["objects", "shape", "dtype", "number"],
)
def test_other_values_are_one_clear_error(runner, given, problem):
    with pytest.raises(ModelError, match=problem):
        runner.run(given)


def test_memory_that_runs_out_is_one_clear_error(build):
    runner = Runner(build(make_region("convoy_hungry", arena_bytes=1 << 60)))
    with pytest.raises(
        ModelError, match=r"run: main: expected enough memory for a run, got .*convoy_hungry"
    ):
        runner.run([np.zeros(SHAPE, np.float32)])


def test_scalar_stays_a_scalar():
    builder = tvm.relax.BlockBuilder()
    x = tvm.relax.Var("x", tvm.relax.TensorType((), "float32"))
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(tvm.relax.op.negative(x)))
    (y,) = Runner(tvm.compile(builder.finalize(), "llvm")).run([np.float32(2)])
    assert (y.shape, float(y)) == ((), -2.0)
