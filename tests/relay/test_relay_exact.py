"""Products of bytes that are TVM's: exact for every CPU, though TVM's own saturate without VNNI."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from relay_modules import run, run_plain
from tvm import relay

import convoy.relay  # noqa: F401  -- registers the target
from convoy.relay.exact import widen_products

nn, qnn = relay.nn, relay.qnn.op
random = np.random.default_rng(3)
IMAGE, ROWS, BATCH = (1, 8, 8, 8), (4, 32), (4, 8, 32)


def weight(dtype: str, *shape: int) -> relay.Constant:
    bounds = np.iinfo(dtype)
    return relay.const(random.integers(bounds.max // 2, bounds.max, shape).astype(dtype), dtype)


def numbers(data_zero: object = 3, weight_zero: object = 0) -> list[relay.Constant]:
    zeros = (relay.const(np.asarray(zero, "int32")) for zero in (data_zero, weight_zero))
    return [*zeros, relay.const(0.1), relay.const(0.02)]


def conv(**given: object) -> dict[str, object]:
    return {"kernel_size": (3, 3), "channels": 16, "padding": (1, 1), "out_dtype": "int32", **given}


Make = Callable[[relay.Expr, str], relay.Expr]
CASES: dict[str, tuple[tuple[int, ...], Make]] = {
    "nn.conv2d": (IMAGE, lambda x, w: nn.conv2d(x, weight(w, 16, 8, 3, 3), **conv())),
    "nn.dense": (ROWS, lambda x, w: nn.dense(x, weight(w, 16, 32), out_dtype="int32")),
    "nn.batch_matmul": (BATCH, lambda x, w: nn.batch_matmul(x, weight(w, 4, 16, 32), out_dtype="int32")),
    "qnn.conv2d": (IMAGE, lambda x, w: qnn.conv2d(x, weight(w, 16, 8, 3, 3), *numbers(), **conv())),
    "qnn.conv2d, zero points": (
        IMAGE,
        lambda x, w: qnn.conv2d(x, weight(w, 16, 8, 3, 3), *numbers(9, np.arange(16) - 8), **conv()),
    ),
    "qnn.dense": (ROWS, lambda x, w: qnn.dense(x, weight(w, 16, 32), *numbers(3, 2), units=16)),
    "qnn.batch_matmul": (BATCH, lambda x, w: qnn.batch_matmul(x, weight(w, 4, 16, 32), *numbers(3, 2))),
}


def module(name: str, data: str, weights: str) -> tvm.IRModule:
    shape, make = CASES[name]
    x = relay.var("x0", shape=shape, dtype=data)
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], make(x, weights))))


@pytest.mark.parametrize("data", ["uint8", "int8"])
@pytest.mark.parametrize("name", CASES)
def test_no_sum_of_bytes_saturates(name: str, data: str) -> None:
    mod = module(name, data, "int8")
    bounds = np.iinfo(data)
    x = random.integers(bounds.max // 2, bounds.max, CASES[name][0]).astype(data)
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(mod, target="llvm -keys=convoy,cpu -mcpu=haswell")
    np.testing.assert_array_equal(run(library, x)[0], run_plain(mod, x)[0])


@pytest.mark.parametrize("machine", ["llvm", "llvm -mcpu=cascadelake"])
@pytest.mark.parametrize("name", CASES)
def test_where_tvm_is_exact_its_products_stay(name: str, machine: str) -> None:
    mod = module(name, "uint8", "int8")
    assert widen_products(mod, tvm.target.Target(machine)) is mod


def test_floats_and_marked_functions_stay() -> None:
    x = relay.var("x0", shape=ROWS, dtype="uint8")
    y = relay.var("y", shape=ROWS, dtype="uint8")
    products = nn.dense(y, weight("int8", 16, 32), out_dtype="int32")
    marked = relay.Function([y], products).with_attr({"Compiler": "other", "global_symbol": "other_0"})
    floats = nn.dense(relay.cast(x, "float32"), relay.const(np.ones((16, 32), "float32")))
    body = relay.add(relay.cast(marked(x), "float32"), floats)
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
    assert widen_products(mod, tvm.target.Target("llvm -mcpu=haswell")) is mod
