"""A network whose ``main`` is marked: it comes to its codegen, and passes that ask for it find one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from relay_bound import block
from relay_marked import TYPE, X
from tvm import relay
from tvm.contrib.graph_executor import GraphModule

from convoy.relay import no_touch, partition_for_convoy
from convoy.relay.dataflow import attribute
from convoy.relay.no_touch import marked_functions
from relay.relay_modules import random

MARKS = {
    "its codegen": {"Compiler": "convoy"},
    "the network's name": {"Compiler": "convoy", "global_symbol": "main", "Primitive": 1},
    "a name of its own": {"Compiler": "convoy", "global_symbol": "convoy_0"},
}


def module(marks: dict[str, object]) -> tvm.IRModule:
    """main: convolution → batch norm → relu, beside a function that is called by nobody."""
    p, q = relay.Var("p", TYPE), relay.Var("q", TYPE)
    main = relay.Function([p], block(p), TYPE)
    functions = {
        relay.GlobalVar("main"): main.with_attr(marks) if marks else main,
        relay.GlobalVar("beside"): relay.Function([q], relay.tanh(q), TYPE),
    }
    return relay.transform.InferType()(tvm.IRModule(functions))


BUILDS: dict[str, Callable[[tvm.IRModule], GraphModule]] = {
    "relay.build": lambda mod: relay.build(mod, target="convoy"),
    "partitioned first": lambda mod: relay.build(partition_for_convoy(mod, folding=False), target="llvm"),
}


@pytest.mark.parametrize("build", BUILDS.values(), ids=BUILDS)
@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
def test_it_is_computed(build: Callable[[tvm.IRModule], object], marks: dict[str, object]) -> None:
    x = random(*X)
    want = relay.create_executor("debug", mod=module({})).evaluate()(x).numpy()
    runner = GraphModule(build(module(marks))["default"](tvm.cpu()))
    runner.run(p=x)
    assert np.abs(runner.get_output(0).numpy() - want).max() <= 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("marks", MARKS.values(), ids=MARKS)
def test_main_calls_what_it_was(marks: dict[str, object]) -> None:
    before = module(marks)
    after = partition_for_convoy(before)
    assert attribute(after["main"], "Compiler") == ""
    (function,) = marked_functions(after).values()
    plain = (relay.Function(list(f.params), f.body) for f in (function, before["main"]))
    assert tvm.ir.structural_equal(*plain)


def test_its_weights_may_come_with_the_build() -> None:
    # main(x, w) is marked for Convoy, and w given as a parameter  =>  a constant of the region
    x, w = relay.Var("x", TYPE), relay.var("w", shape=(4, 4, 3, 3))
    body = relay.nn.conv2d(x, w, padding=(1, 1), channels=4, kernel_size=(3, 3))
    main = relay.Function([x, w], body).with_attr("Compiler", "convoy")
    runner = GraphModule(
        relay.build(tvm.IRModule.from_expr(main), "convoy", params={"w": random(4, 4, 3, 3)})["default"](
            tvm.cpu()
        )
    )
    assert runner.get_num_inputs() == 1


# The guard ------------------------------------------------------------------------------------------


def read_main(mod: tvm.IRModule) -> tvm.IRModule:
    assert mod["main"].checked_type == relay.FuncType([TYPE], TYPE)
    return mod


def make_main_anew(mod: tvm.IRModule) -> tvm.IRModule:
    main = mod["main"]
    return tvm.IRModule(
        {**mod.functions, mod.get_global_var("main"): relay.Function(main.params, main.body)}
    )


def make_all_anew(mod: tvm.IRModule) -> tvm.IRModule:
    made = tvm.IRModule.from_expr(relay.Function(mod["main"].params, mod["main"].body))
    made["beside"] = mod["beside"]
    return made


def let_main_go(mod: tvm.IRModule) -> tvm.IRModule:
    return tvm.IRModule({mod.get_global_var("beside"): mod["beside"]})


def written(run: Callable[[tvm.IRModule], tvm.IRModule]) -> tvm.ir.transform.Pass:
    return tvm.ir.transform.module_pass(lambda mod, _: run(mod), opt_level=0, name="Written")


WRITTEN = (read_main, make_main_anew, make_all_anew, let_main_go)
MADE = {
    "FuseOps": relay.transform.FuseOps(2),
    "ToANormalForm": relay.transform.ToANormalForm(),
    "AnnotateTarget": relay.transform.AnnotateTarget("third"),
    "PartitionGraph": tvm.transform.Sequential(
        [relay.transform.AnnotateTarget("third"), relay.transform.PartitionGraph()]
    ),
    "build": written(lambda mod: relay.build_module.optimize(mod, target=tvm.target.Target("llvm"))[0]),
    **{run.__name__: written(run) for run in WRITTEN},
}


@pytest.mark.parametrize("name", MADE)
def test_a_pass_finds_a_main_and_leaves_it(name: str) -> None:
    before = module(MARKS["the network's name"])
    with tvm.transform.PassContext(opt_level=3):
        after = no_touch(MADE[name])(before)
    tvm.ir.assert_structural_equal(after["main"], before["main"])


def test_a_copy_of_it_calls_it() -> None:
    def copy(mod: tvm.IRModule) -> tvm.IRModule:
        return tvm.IRModule({**mod.functions, relay.GlobalVar("copy"): mod["main"]})

    before = module(MARKS["the network's name"])
    after = no_touch(written(copy))(before)
    tvm.ir.assert_structural_equal(after["main"], before["main"])
    assert after["copy"].body.op.same_as(after.get_global_var("main"))


WORK: dict[str, Callable[[relay.Expr], relay.Expr]] = {"its result": relay.tanh, "nothing": lambda y: y}


@pytest.mark.parametrize("anew", [True, False])
@pytest.mark.parametrize("on", WORK)
def test_work_of_a_pass_in_it_is_an_error(on: str, anew: bool) -> None:
    def work(mod: tvm.IRModule) -> tvm.IRModule:
        main = mod["main"]
        changed = relay.Function(main.params, WORK[on](main.body if on != "nothing" else main.params[0]))
        if anew:
            return tvm.IRModule.from_expr(changed)
        return tvm.IRModule({**mod.functions, mod.get_global_var("main"): changed})

    with pytest.raises(
        Exception, match="no_touch: function 'main': expected it unchanged, got work on its"
    ):
        no_touch(written(work))(module(MARKS["the network's name"]))
