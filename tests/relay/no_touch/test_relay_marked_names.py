"""A marked function is called as its author likes: a name of C, the network's, or none of C's."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.contrib.graph_executor import GraphModule
from tvm.relay.backend import Executor

from convoy.relay import partition_for_convoy
from convoy.relay.dataflow import attribute

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


# Names and symbols ----------------------------------------------------------------------------------


ONCE, TWICE = 2.0, 3.0
ROW = relay.TensorType((1, 16), "float32")


def scaling(factor: float, symbol: str) -> relay.Function:
    p = relay.Var("p", ROW)
    body = relay.nn.relu(relay.nn.softmax(p) * relay.const(factor))
    return relay.Function([p], body, ROW).with_attr(
        {"Compiler": "convoy", "global_symbol": symbol, "Primitive": 1, "Inline": 1}
    )


def crossed(x: relay.Expr, module: tvm.IRModule) -> relay.Expr:
    one, other = relay.GlobalVar("one"), relay.GlobalVar("other")
    module[one], module[other] = scaling(TWICE, "other"), scaling(ONCE, "one")
    return one(one(other(x)))


def of_a_network(x: relay.Expr, module: tvm.IRModule) -> relay.Expr:
    network, y = relay.GlobalVar("network"), relay.Var("y", ROW)
    twice = scaling(TWICE, "network")
    module[network] = relay.Function([y], twice(twice(scaling(ONCE, "f")(y))), ROW)
    return network(x)


def with_a_number(x: relay.Expr, _: tvm.IRModule) -> relay.Expr:
    twice = scaling(TWICE, "f")
    return twice(twice(scaling(ONCE, "f_1")(x)))


def with_a_number_behind(x: relay.Expr, _: tvm.IRModule) -> relay.Expr:
    twice = scaling(TWICE, "f")
    return scaling(ONCE, "f_1")(twice(twice(x)))


def made_up(x: relay.Expr, _: tvm.IRModule) -> relay.Expr:
    twice = scaling(TWICE, "f").without_attr("global_symbol")
    return scaling(ONCE, "f").without_attr("global_symbol")(twice(twice(x)))


FIRST, LAST = (ONCE, TWICE, TWICE), (TWICE, TWICE, ONCE)
FORMS = [
    (crossed, FIRST),
    (of_a_network, FIRST),
    (with_a_number, FIRST),
    (with_a_number_behind, LAST),
    (made_up, LAST),
]


@pytest.mark.parametrize(("form", "factors"), FORMS)
def test_the_name_of_one_is_the_symbol_of_another(
    form: Callable[..., relay.Expr], factors: tuple[float, ...]
) -> None:
    # one function is called twice, so it has two names and one symbol
    x, module = relay.Var("x", ROW), tvm.IRModule()
    module["main"] = relay.Function([x], form(x, module))
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(module, target="convoy"), tvm.cpu())
    want = X
    for factor in factors:
        exponents = np.exp(want)
        want = exponents / exponents.sum() * factor
    np.testing.assert_allclose(machine.run(X).numpy(), want, rtol=1e-5)


def test_symbols_stay_that_no_other_function_has() -> None:
    x = relay.Var("x", ROW)
    cut = partition_for_convoy(
        tvm.IRModule.from_expr(relay.Function([x], with_a_number(x, tvm.IRModule())))
    )
    symbols = [attribute(function, "global_symbol") for _, function in cut.functions.items()]
    assert sorted(symbols) == ["", "f", "f", "f_1"]
