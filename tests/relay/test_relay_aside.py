"""Functions with references, or not to be optimized, are left to TVM, whose partitioning fails over one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from relay_modules import random, weight
from tvm import relay

from convoy.errors import TargetError
from convoy.relay import partition_for_convoy
from convoy.relay.dataflow import attribute, has_attribute
from convoy.relay.no_touch import marked_functions
from convoy.relay.partition import external_functions, partition
from convoy.report.decision import Report

SHAPE = (1, 4, 16, 16)
TYPE = relay.TensorType(SHAPE, "float32")


def conv(x: relay.Expr) -> relay.Expr:
    return relay.nn.relu(
        relay.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3))
    )


def module(block: Callable[[relay.Expr], relay.Expr] = conv, *, alone: bool = False) -> tvm.IRModule:
    """main: what ``beside`` and ``block`` make of x, in a reference that is written and read."""
    x, y, r, unread = relay.Var("x0", TYPE), relay.Var("y", TYPE), relay.var("r"), relay.var("unread")
    beside = relay.GlobalVar("beside")
    made = tvm.IRModule({beside: relay.Function([y], conv(y), TYPE)})
    stored = relay.RefCreate(block(x if alone else relay.Call(beside, [x])))
    changed = relay.Let(unread, relay.RefWrite(r, relay.tanh(relay.RefRead(r))), relay.RefRead(r))
    made["main"] = relay.Function([x], relay.Let(r, stored, changed))
    return relay.transform.InferType()(made)


def test_the_function_is_left_and_those_beside_it_are_taken() -> None:
    report = Report()
    cut = partition(module(), report=report)
    (region,) = external_functions(cut).values()
    assert tvm.ir.structural_equal(cut["main"].body, module()["main"].body, True)
    assert not has_attribute(cut["main"], "Compiler")
    taken = [decision.choice for decision in report.decisions if decision.node.startswith("nn.conv2d")]
    assert sorted(taken) == ["left", "taken"]
    assert all("a reference" in refusal.reason for refusal in report.refusals)
    assert attribute(region, "Compiler") == "convoy"


def test_a_main_that_is_not_to_be_optimized_stays_as_it_is() -> None:
    # TVM's MergeComposite put another function in its place
    given = module()
    x = given["main"].params[0]
    body = relay.exp(relay.Call(given.get_global_var("beside"), [relay.tanh(x)]))
    given["main"] = relay.Function([x], body).with_attr("SkipOptimization", 1)
    given = relay.transform.InferType()(given)
    cut = partition(given)
    assert len(external_functions(cut)) == 1
    assert tvm.ir.structural_equal(cut["main"].body, given["main"].body, True)
    assert attribute(cut["main"], "SkipOptimization") == "1"


def test_its_own_attributes_stay() -> None:
    given = module()
    given["main"] = given["main"].with_attr({"mine": "kept"})
    cut = partition(given)
    assert attribute(cut["main"], "mine") == "kept"
    assert not has_attribute(cut["main"], "Compiler")


def test_it_computes_what_it_did() -> None:
    x = random(*SHAPE)
    want, got = (
        relay.create_executor("debug", mod=made).evaluate()(x).numpy()
        for made in (module(), partition(module(), codegen="acme", refuse=lambda _: "no"))
    )
    np.testing.assert_array_equal(got, want)


def test_a_marked_function_in_one_stays_as_it_was() -> None:
    y = relay.Var("y", TYPE)
    marks = {"Compiler": "acme", "global_symbol": "acme_0"}
    function = relay.Function([y], conv(y), TYPE).with_attr(marks)
    before = module(lambda x: function(x))
    found = marked_functions(partition_for_convoy(before, folding=False))
    assert tvm.ir.structural_equal(
        found["acme_0"].body, marked_functions(before)["main: acme_0"].body, True
    )


@pytest.mark.parametrize("build", [relay.build, relay.vm.compile], ids=["relay.build", "vm"])
def test_what_tvm_cannot_compile_is_one_line(build: Callable[..., object]) -> None:
    message = (
        "^target: function main: expected a network that TVM compiles, got one with a reference; hand its"
    )
    with pytest.raises(TargetError, match=message):
        build(module(alone=True), target="convoy")
