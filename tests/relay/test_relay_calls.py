"""Functions that a network calls by their names: TVM builds them for executors that cannot call them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.backend import Executor

from convoy.errors import TargetError
from convoy.relay import partition_for_convoy
from relay.relay_modules import random, run

TYPE = relay.TensorType((1, 4), "float32")
COUNT = relay.TensorType((), "int32")
X = random(1, 4)
EXECUTORS = {"graph": Executor("graph"), "aot": Executor("aot", {"interface-api": "packed"})}


def calling() -> tvm.IRModule:
    """main: negative → a function of an exp."""
    p, place = relay.Var("p", TYPE), relay.GlobalVar("even")
    return with_main({place: relay.Function([p], relay.exp(p), TYPE)}, lambda x: place(relay.negative(x)))


def mutual() -> tvm.IRModule:
    """even(p, i) = i < 3 ? odd(p, i + 1) : p; odd(q, j) = even(-q, j + 1)."""
    even, odd = relay.GlobalVar("even"), relay.GlobalVar("odd")
    p, i, q, j = relay.Var("p", TYPE), relay.Var("i", COUNT), relay.Var("q", TYPE), relay.Var("j", COUNT)
    one = relay.const(1)
    more = relay.If(relay.less(i, relay.const(3)), odd(p, i + one), p)
    functions = {
        even: relay.Function([p, i], more, TYPE),
        odd: relay.Function([q, j], even(relay.negative(q), j + one), TYPE),
    }
    return with_main(functions, lambda x: even(relay.exp(x), relay.const(0)))


def with_main(functions, body) -> tvm.IRModule:
    x = relay.Var("x0", TYPE)
    made = tvm.IRModule({**functions, relay.GlobalVar("main"): relay.Function([x], body(x), TYPE)})
    return relay.transform.InferType()(made)


@pytest.mark.parametrize("executor", EXECUTORS.values(), ids=EXECUTORS)
@pytest.mark.parametrize("make", [calling, mutual])
def test_relay_build_refuses_them(make, executor: Executor) -> None:
    message = (
        "^target: function even: expected a network of ops for relay.build, got one that calls this by its "
        "name; compile it with relay.vm.compile"
    )
    with pytest.raises(TargetError, match=message):
        relay.build(make(), target="convoy", executor=executor)


def marked(x: relay.Expr) -> relay.Expr:
    p = relay.Var("p", TYPE)
    function = relay.Function([p], relay.nn.relu(relay.nn.softmax(p)), TYPE)
    return function.with_attr({"Compiler": "convoy", "global_symbol": "convoy_0"})(x)


def loop(x: relay.Expr) -> relay.Expr:
    again = relay.Var("again", relay.FuncType([COUNT, TYPE], TYPE))
    n, y = relay.Var("n", COUNT), relay.Var("y", TYPE)
    turn = relay.If(relay.less(n, relay.const(1)), y, again(n - relay.const(1), marked(y)))
    return relay.Let(again, relay.Function([n, y], turn, TYPE), again(relay.const(2), x))


def branch(x: relay.Expr) -> relay.Expr:
    return relay.If(relay.less(relay.sum(x), relay.const(0.0)), marked(x), relay.tanh(x))


def composite(x: relay.Expr) -> relay.Expr:
    p = relay.Var("p", TYPE)
    return relay.Function([p], relay.exp(p), TYPE).with_attr("Composite", "acme.exp")(marked(x))


def let_function(x: relay.Expr) -> relay.Expr:
    f, y = relay.Var("f"), relay.Var("y", TYPE)
    return relay.Let(f, relay.Function([y], relay.tanh(y)), relay.Call(f, [marked(x)]))


def closure(x: relay.Expr) -> relay.Expr:
    y = relay.Var("y", TYPE)
    return relay.Function([y], relay.tanh(y), TYPE)(marked(x))


BEYOND = {
    "a function that is called where it is written; compile it with relay.vm.compile$": closure,
    "a function that a let binds; compile it with relay.vm.compile$": let_function,
    "a branch; compile it with relay.vm.compile$": branch,
    "a function that calls itself; compile it with relay.vm.compile$": loop,
    "a composite acme.exp, which belongs to no codegen; give it to one by AnnotateTarget": composite,
}


@pytest.mark.parametrize("target", ["convoy", "llvm"])
@pytest.mark.parametrize("got", BEYOND)
def test_what_no_executor_runs_is_named_where_tvm_fails(got: str, target: str) -> None:
    module = with_main({}, BEYOND[got])
    if target == "llvm":
        module = partition_for_convoy(module, folding=False)
    with pytest.raises(
        TargetError,
        match=f"^target: function main: expected a network of ops for relay.build, got one with {got}",
    ):
        relay.build(module, target=target)


def test_other_errors_of_a_build_stay_as_they_are() -> None:
    @tvm.instrument.pass_instrument
    class Fails:
        def run_before_pass(self, _: tvm.IRModule, info: tvm.ir.transform.PassInfo) -> None:
            if info.name == "FuseOps":
                raise tvm.TVMError("no such kind")

    with (
        pytest.raises(tvm.TVMError, match="no such kind"),
        tvm.transform.PassContext(opt_level=3, instruments=[Fails()]),
    ):
        relay.build(with_main({}, lambda x: marked(relay.negative(x))), target="convoy")


def test_a_branch_of_a_constant_is_built() -> None:
    # FoldConstant takes the branch that it is
    module = with_main({}, lambda x: relay.If(relay.const(True), marked(x), relay.tanh(x)))
    with tvm.transform.PassContext(opt_level=3):
        run(relay.build(module, target="convoy"), X)


def test_a_partitioned_module_that_calls_one_is_warned_of() -> None:
    # TVM builds a library for another target, which calls what is not in it
    p, place = relay.Var("p", TYPE), relay.GlobalVar("even")
    functions = {place: relay.Function([p], marked(p), TYPE)}
    module = partition_for_convoy(with_main(functions, lambda x: place(relay.negative(x))))
    with pytest.warns(
        RuntimeWarning, match="^target: function even: expected a network of ops for relay.build"
    ):
        relay.build(module, target="llvm")


@pytest.mark.parametrize(("make", "expected"), [(calling, np.exp(-X)), (mutual, np.exp(X))])
def test_the_virtual_machine_calls_them(make, expected: np.ndarray) -> None:
    executable = relay.vm.compile(make(), target="convoy")
    got = tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(tvm.nd.array(X))
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-5)


def test_one_that_asks_to_be_inlined_is() -> None:
    module = calling()
    place = module.get_global_var("even")
    module[place] = module[place].with_attr("Inline", tvm.tir.IntImm("int32", 1))
    (got,) = run(relay.build(module, target="convoy"), X)
    np.testing.assert_allclose(got, np.exp(-X), rtol=1e-5)
