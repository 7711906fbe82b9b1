"""Functions that a network calls by their names: TVM builds them for executors that cannot call them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay.backend import Executor

from convoy.errors import TargetError
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
