"""Weights given as params reach the regions that were cut out before."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from relay_modules import random, run
from tvm import relay
from tvm.relay.backend import Executor
from tvm.relay.op.annotation import compiler_begin, compiler_end

from convoy.relay import partition_for_convoy
from convoy.relay.dataflow import attribute

IMAGE = (1, 4, 8, 8)
WEIGHT = (4, 4, 3, 3)
PARAMS = {"w": random(*WEIGHT), "v": random(*WEIGHT, seed=1)}


def conv(x: relay.Expr, w: relay.Expr) -> relay.Expr:
    return relay.nn.conv2d(x, w, padding=(1, 1), channels=4, kernel_size=(3, 3))


def cut(codegen: str = "convoy") -> tvm.IRModule:
    """relu(conv2d(x, w)), cut out by the user, who knows no weights yet."""
    x, w = relay.var("x0", shape=IMAGE), relay.var("w", shape=WEIGHT)
    y = relay.nn.relu(conv(compiler_begin(x, codegen), compiler_begin(w, codegen)))
    module = tvm.IRModule.from_expr(relay.Function([x, w], compiler_end(y, codegen)))
    return relay.transform.PartitionGraph()(relay.transform.InferType()(module))


def called(form: str) -> tvm.IRModule:
    """A marked function of data and weight, written in ``main``."""
    x, w, v = (
        relay.var(name, shape=shape) for name, shape in (("x0", IMAGE), ("w", WEIGHT), ("v", WEIGHT))
    )
    p, q = relay.var("p", shape=IMAGE), relay.var("q", shape=WEIGHT)
    body = relay.nn.relu(conv(p, q))
    if form == "composite":
        a, b = relay.var("a", shape=IMAGE), relay.var("b", shape=WEIGHT)
        composite = relay.Function([a, b], relay.nn.relu(conv(a, b))).with_attr(
            "Composite", "convoy.conv2d_relu"
        )
        body = composite(p, q)
    function = relay.Function([p, q], body).with_attr({"Compiler": "convoy", "global_symbol": "mine_0"})
    if form == "let":
        value, f = relay.var("value"), relay.var("f")
        result = relay.Let(value, w, relay.Let(f, function, relay.Call(f, [x, value])))
    else:
        result = function(function(x, w), v) if form == "two" else function(x, w)
    params = [x, w, v] if form == "two" else [x, w]
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(params, result)))


def vm(module: tvm.IRModule) -> np.ndarray:
    executable = relay.vm.compile(module, target="convoy", params=PARAMS)
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(tvm.nd.array(random(*IMAGE))).numpy()


def ahead(module: tvm.IRModule) -> np.ndarray:
    executor = Executor("aot", {"interface-api": "packed"})
    library = relay.build(module, "convoy", params=PARAMS, executor=executor)
    runner = tvm.runtime.executor.AotModule(library["default"](tvm.cpu()))
    runner.set_input("x0", random(*IMAGE))
    runner.run()
    return runner.get_output(0).numpy()


ENTRIES: dict[str, Callable[[tvm.IRModule], np.ndarray]] = {
    "relay.build": lambda mod: run(relay.build(mod, "convoy", params=PARAMS), random(*IMAGE))[0],
    "vm": vm,
    "aot": ahead,
    "partitioned first": lambda mod: run(
        relay.build(partition_for_convoy(mod, PARAMS), "llvm"), random(*IMAGE))[0],
}  # fmt: skip
WAYS = [("cut", entry) for entry in ENTRIES] + [
    (form, "relay.build") for form in ("composite", "let", "two")
]


@pytest.mark.parametrize(("form", "entry"), [*WAYS, ("two", "aot")])
def test_a_weight_reaches_the_function_that_takes_it(form: str, entry: str) -> None:
    # whichever of two weights a call has: each has a function of its own then
    got = ENTRIES[entry](cut() if form == "cut" else called(form))
    weights = ("w", "v") if form == "two" else ("w",)
    want = relay.var("x0", shape=IMAGE)
    body = want
    for name in weights:
        body = relay.nn.relu(conv(body, relay.const(PARAMS[name])))
    plain = relay.build(tvm.IRModule.from_expr(relay.Function([want], body)), "llvm")
    np.testing.assert_allclose(got, run(plain, random(*IMAGE))[0], rtol=1e-4, atol=1e-4)


def test_functions_of_other_codegens_get_what_tvm_gives_them() -> None:
    after = partition_for_convoy(cut("acme"), PARAMS)
    (function,) = (f for _, f in after.functions.items() if attribute(f, "Compiler") == "acme")
    assert len(function.params) == 2


def test_a_function_of_literals_alone_keeps_a_parameter() -> None:
    after = partition_for_convoy(cut(), {**PARAMS, "x0": random(*IMAGE)})
    (function,) = (f for _, f in after.functions.items() if attribute(f, "Compiler") == "convoy")
    assert len(function.params) == 1
