"""A marked function is called as its author likes: a name of C, the network's, or none of C's."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.graph_executor import GraphModule
from tvm.relay.backend import Executor

import convoy.relay  # noqa: F401  -- registers the target

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(1, 16)
NAMES = ["main", "mmap", "int", "conv/1", "1a", "über"]


def module_of(name: str) -> tvm.IRModule:
    x, p = relay.var("x", shape=(1, 16)), relay.var("p", shape=(1, 16))
    body = relay.nn.relu(relay.nn.softmax(p))
    marked = relay.Function([p], body).with_attr({"Compiler": "convoy", "global_symbol": name})
    return relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function([x], marked(relay.negative(x))))
    )


@pytest.mark.parametrize("name", NAMES)
def test_the_graph_executor_calls_it(name: str) -> None:
    runner = GraphModule(relay.build(module_of(name), target="convoy")["default"](tvm.cpu()))
    runner.run(x=X)
    exponents = np.exp(-X)
    np.testing.assert_allclose(runner.get_output(0).numpy(), exponents / exponents.sum(), rtol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_built_ahead_of_time(name: str) -> None:
    relay.build(module_of(name), target="convoy", executor=Executor("aot", {"interface-api": "packed"}))
