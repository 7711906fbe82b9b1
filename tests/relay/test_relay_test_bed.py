"""The environment of these tests: a classic TVM that builds and runs, and Convoy from this checkout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tvm
from tvm import relay
from tvm.contrib import graph_executor

import convoy


def test_relay_builds_and_runs() -> None:
    x = relay.var("x", shape=(1, 4), dtype="float32")
    module = tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x - relay.const(2.0))))
    executor = graph_executor.GraphModule(relay.build(module, target="llvm")["default"](tvm.cpu()))
    executor.run(x=np.arange(4, dtype=np.float32).reshape(1, 4))
    np.testing.assert_array_equal(executor.get_output(0).numpy(), [[0, 0, 0, 1]])


def test_convoy_is_this_checkout() -> None:
    assert Path(convoy.__file__).is_relative_to(Path(__file__).parents[2])
