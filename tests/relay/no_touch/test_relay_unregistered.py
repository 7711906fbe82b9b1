"""A marked function whose codegen nobody registered: one line that names both, before anything is built."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tvm
from relay_marked import TYPE
from tvm import relay
from tvm.relay.backend import Executor

from convoy.errors import ModelError
from convoy.relay import partition_for_convoy

BUILDS: dict[str, Callable[[tvm.IRModule], object]] = {
    "relay.build": lambda mod: relay.build(mod, target="convoy"),
    "aot": lambda mod: relay.build(
        mod, target="convoy", executor=Executor("aot", {"interface-api": "packed"})
    ),
    "vm": lambda mod: relay.vm.compile(mod, target="convoy"),
}


def module(*, called: bool) -> tvm.IRModule:
    x, p, place = relay.Var("x", TYPE), relay.Var("p", TYPE), relay.GlobalVar("gate")
    marks = {"Compiler": "nobody", "global_symbol": "gate", "Primitive": 1, "Inline": 1}
    body = relay.tanh(relay.Call(place, [x])) if called else relay.tanh(x)
    functions = {
        place: relay.Function([p], relay.exp(p), TYPE).with_attr(marks),
        relay.GlobalVar("main"): relay.Function([x], body, TYPE),
    }
    return relay.transform.InferType()(tvm.IRModule(functions))


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_it_is_named_with_its_codegen(build: Callable[[tvm.IRModule], object]) -> None:
    message = (
        "^codegen: function 'gate': expected a codegen that is registered, got nobody, for which there is "
        r"no relay\.ext\.nobody; import what registers relay\.ext\.nobody, or take the mark off the"
    )
    with pytest.raises(ModelError, match=message):
        build(module(called=True))


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
def test_one_that_nobody_calls_is_built_around(build: Callable[[tvm.IRModule], object]) -> None:
    build(module(called=False))


def test_partitioning_asks_for_no_codegen() -> None:
    # it may be registered before the build, or be another machine's
    partition_for_convoy(module(called=True))
