"""Modules that are more than dataflow: lets, functions written inside, branches, loops, matches."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_modules import module, random, weight
from tvm import relay
from tvm.relay import op
from tvm.relay.adt import Clause, Match, PatternConstructor, PatternVar
from tvm.relay.loops import while_loop
from tvm.relay.testing import lstm

import convoy
from convoy.offload.reasons import BOUND, IN_BRANCH, UNSEEN
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.fold import fold
from convoy.relay.lets import without_lets
from convoy.relay.partition import partition
from convoy.report.decision import Report

IMAGE = (1, 8, 32, 32)


def conv_relu(x, seed):
    return op.nn.relu(op.nn.conv2d(x, weight(8, 8, 3, 3, seed=seed), padding=(1, 1)))


def same(got, want):
    infer = relay.transform.InferType()
    tvm.ir.assert_structural_equal(*(infer(tvm.IRModule.from_expr(f))["main"] for f in (got, want)))


def run_vm(mod, target, *inputs):
    executable = relay.vm.compile(mod, target=target)
    return tvm.runtime.vm.VirtualMachine(executable, tvm.cpu()).run(*inputs).numpy()


def compare(mod, *inputs):
    """Runs with Convoy as with TVM alone; what Convoy took."""
    report = Report()
    with convoy.relay.using(report=report):
        got = run_vm(mod, "convoy", *inputs)
    want = run_vm(mod, "llvm", *inputs)
    assert abs(got - want).max() <= 1e-5 * abs(want).max()
    return report


# Lets ----------------------------------------------------------------------------------------------


def test_a_let_becomes_dataflow():
    x, a, b = relay.var("x", shape=(4,)), relay.var("a"), relay.var("b")
    before = relay.Let(a, op.exp(x), relay.Let(b, op.tanh(a), op.add(a, b)))
    exp = op.exp(x)
    same(without_lets(relay.Function([x], before)), relay.Function([x], op.add(exp, op.tanh(exp))))


def test_a_let_in_a_branch():
    x, c = relay.var("x", shape=(4,)), relay.var("c", shape=(), dtype="bool")
    a, b = relay.var("a"), relay.var("b")
    before = relay.Let(a, op.exp(x), relay.If(c, a, relay.Let(b, op.tanh(a), b)))
    exp = op.exp(x)
    same(
        without_lets(relay.Function([c, x], before)), relay.Function([c, x], relay.If(c, exp, op.tanh(exp)))
    )


def test_a_let_that_a_function_inside_uses_stays():
    # the loop would compute its value with each turn
    x, y, a = relay.var("x", shape=(4,)), relay.var("y", shape=(4,)), relay.var("a", shape=(4,))
    function = relay.Function([x], relay.Let(a, op.exp(x), relay.Function([y], op.add(y, a))(x)))
    same(without_lets(function), function)


def test_a_let_inside_a_function_of_a_function_without():
    x, y, a = relay.var("x", shape=(4,)), relay.var("y", shape=(4,)), relay.var("a")

    def make(body):
        return relay.Function([x], relay.Call(relay.Function([y], body), [x]))

    same(without_lets(make(relay.Let(a, op.exp(y), op.tanh(a)))), make(op.tanh(op.exp(y))))


def test_a_function_stays_bound():
    x, y, f = relay.var("x", shape=(4,)), relay.var("y", shape=(4,)), relay.var("f")
    function = relay.Function([x], relay.Let(f, relay.Function([y], op.exp(y)), relay.Call(f, [x])))
    same(without_lets(function), function)


def test_lets_beside_a_reference_stay():
    x, a = relay.var("x", shape=(4,)), relay.var("a")
    function = relay.Function([x], relay.Let(a, relay.RefCreate(x), relay.RefRead(a)))
    same(without_lets(function), function)


@pytest.mark.parametrize("folding", [True, False])
def test_regions_do_not_end_at_lets(folding):
    mod = relay.transform.ToANormalForm()(module(lambda x: conv_relu(conv_relu(x, 1), 2), IMAGE))
    report = Report()
    with convoy.relay.using(report=report):
        mod = convoy.relay.partition_for_convoy(mod, folding=folding)
        run_vm(mod, "llvm", random(*IMAGE))
    assert len(report.regions) == 1
    assert not report.refusals


# Functions inside ----------------------------------------------------------------------------------


def test_functions_inside_are_cut_and_reported():
    y = relay.var("y", shape=IMAGE)
    function = relay.Function([y], op.asinh(conv_relu(y, 1)))
    report = compare(module(lambda x: conv_relu(function(function(x)), 2), IMAGE), random(*IMAGE))
    assert len(report.regions) == 2
    taken = [decision.node.split()[0] for decision in report.decisions if decision.choice == "taken"]
    assert sorted(taken) == ["nn.conv2d", "nn.conv2d", "nn.relu", "nn.relu"]
    assert [refusal.node.split()[0] for refusal in report.refusals] == ["asinh"]


def test_what_is_not_worth_a_call_is_given_back_inside_a_function_too():
    y = relay.var("y", shape=(1, 4))
    function = relay.Function([y], op.exp(y))
    report = compare(module(lambda x: function(function(x)), (1, 4)), random(1, 4))
    assert [refusal.reason.partition(":")[0] for refusal in report.refusals] == ["given back"]


def test_functions_inside_that_use_what_is_outside_are_left_with_a_reason():
    y = relay.var("y", shape=IMAGE)

    def net(x):
        h = conv_relu(x, 1)
        return conv_relu(relay.Function([y], op.add(conv_relu(y, 2), h))(h), 3)

    report = compare(module(net, IMAGE), random(*IMAGE))
    assert {refusal.reason for refusal in report.refusals} == {BOUND}
    assert len(report.refusals) == 5
    assert len(report.regions) == 1


def test_a_function_that_several_functions_use():
    y, z, u = (relay.var(name, shape=IMAGE) for name in "yzu")
    inner = relay.Function([y], conv_relu(y, 1))
    outer = [relay.Function([var], conv_relu(inner(var), seed)) for seed, var in ((2, z), (3, u))]
    report = compare(module(lambda x: op.add(outer[0](inner(x)), outer[1](x)), IMAGE), random(*IMAGE))
    assert not report.refusals


def test_what_nested_functions_use_is_counted_once():
    # each uses what the one before it made
    x = relay.var("x", shape=(1, 4))
    variables = [x, *(relay.var(f"a{i}") for i in range(12))]
    body = variables[-1]
    for i in reversed(range(12)):
        y = relay.var(f"y{i}", shape=(1, 4))
        made = relay.Function([y], op.add(op.exp(y), variables[i]))(variables[i])
        body = relay.Let(variables[i + 1], made, body)
    report = Report()
    partition(tvm.IRModule.from_expr(relay.Function([x], body)), report=report)
    assert [decision.reason for decision in report.decisions] == [BOUND] * 24


def test_a_loop():
    i, s = relay.var("i", shape=(), dtype="int32"), relay.var("s", shape=IMAGE)
    y = relay.var("y", shape=IMAGE)
    body = relay.Function([y], conv_relu(y, 1))
    loop = while_loop(
        lambda i, s: op.less(i, relay.const(3)), [i, s], lambda i, s: [i + relay.const(1), body(s)]
    )
    mod = module(lambda x: conv_relu(relay.TupleGetItem(loop(relay.const(0), x), 1), 2), IMAGE)
    report = compare(mod, random(*IMAGE))
    assert len(report.regions) == 2
    assert sorted(refusal.node.split()[0] for refusal in report.refusals) == ["add", "less"]


def conv_norm(x, seed):
    values = [weight(8, seed=seed + i) for i in range(3)]
    y = op.nn.conv2d(x, weight(8, 8, 3, 3, seed=seed), padding=(1, 1))
    return op.nn.relu(op.nn.batch_norm(y, *values, op.abs(values[0]))[0])


def folded_ops(mod):
    """Every op, once, of a module after ``fold``; its decisions."""
    report, found = Report(), []
    after = fold(report)(mod)
    relay.analysis.post_order_visit(
        after["main"], lambda node: found.append(op_name(node)) if op_name(node) else None
    )
    return found, [d.choice for d in report.decisions]


@pytest.mark.parametrize("calls", [1, 2])
def test_a_batch_norm_in_a_function_inside_is_folded(calls):
    # fn(q) { relu(batch_norm(conv2d(q))) }, called once or twice  =>  one conv2d, one bias
    y = relay.var("y", shape=IMAGE)
    inner = relay.Function([y], conv_norm(y, 1))
    mod = module(lambda x: inner(inner(x)) if calls == 2 else inner(x), IMAGE)
    assert folded_ops(mod) == (["nn.conv2d", "add", "nn.relu"], ["folded"])
    assert not compare(mod, random(*IMAGE)).refusals


def test_a_batch_norm_in_a_function_within_a_function_is_folded():
    # both, each by itself; the inner function is called with what the outer one's batch norm makes
    y, z = relay.var("y", shape=IMAGE), relay.var("z", shape=IMAGE)
    inner = relay.Function([z], conv_norm(z, 1))
    outer = relay.Function([y], inner(conv_norm(y, 2)))
    mod = module(lambda x: outer(conv_norm(x, 3)), IMAGE)
    found, choices = folded_ops(mod)
    assert sorted(found) == sorted(["nn.conv2d", "add", "nn.relu"] * 3)
    assert choices == ["folded"] * 3
    assert not compare(mod, random(*IMAGE)).refusals


CHANNELS_LAST = (1, 32, 32, 8)


def conv_last(x, seed):
    y = op.nn.conv2d(x, weight(3, 3, 8, 8, seed=seed), padding=(1, 1), channels=8, kernel_size=(3, 3),
                     data_layout="NHWC", kernel_layout="HWIO")  # fmt: skip
    return op.nn.relu(y)


def test_channels_last_in_a_function_inside_is_turned():
    # around it there is nothing to turn: fn(y) { conv2d NHWC → max_pool2d NHWC }(tanh(x))
    y = relay.var("y", shape=CHANNELS_LAST)
    inner = relay.Function([y], op.nn.max_pool2d(conv_last(y, 1), (2, 2), layout="NHWC"))
    report = compare(module(lambda x: inner(op.tanh(x)), CHANNELS_LAST), random(*CHANNELS_LAST))
    assert not report.refusals


@pytest.mark.parametrize("itself", [False, True])
def test_channels_last_in_a_function_that_uses_what_is_outside_stays(itself):
    # a value from around it, or itself
    y, f, n = relay.var("y", shape=CHANNELS_LAST), relay.var("f"), relay.var("n", shape=(), dtype="int32")

    def net(x):
        if not itself:
            return relay.Function([y], op.add(conv_last(y, 1), x))(op.tanh(x))
        again = relay.Call(f, [op.subtract(n, relay.const(1)), conv_last(y, 1)])
        body = relay.If(op.less(n, relay.const(1)), y, again)
        function = relay.Function([n, y], body, relay.TensorType(CHANNELS_LAST))
        return relay.Let(f, function, relay.Call(f, [relay.const(2), x]))

    report = compare(module(net, CHANNELS_LAST), random(*CHANNELS_LAST))
    reasons = {decision.reason for decision in report.refusals if "conv2d" in decision.node}
    assert reasons == {BOUND}


def test_a_batch_norm_in_a_primitive_function_stays():
    # what FuseOps made is not opened
    y = relay.var("y", shape=IMAGE)
    inner = relay.Function([y], conv_norm(y, 1)).with_attr("Primitive", 1)
    assert folded_ops(module(lambda x: inner(x), IMAGE))[1] == []


def test_a_batch_norm_before_and_in_a_loop_is_folded():
    i, s = relay.var("i", shape=(), dtype="int32"), relay.var("s", shape=IMAGE)
    y = relay.var("y", shape=IMAGE)
    body = relay.Function([y], conv_norm(y, 1))
    loop = while_loop(
        lambda i, s: op.less(i, relay.const(3)), [i, s], lambda i, s: [i + relay.const(1), body(s)]
    )
    mod = module(lambda x: relay.TupleGetItem(loop(relay.const(0), conv_norm(x, 2)), 1), IMAGE)
    found, choices = folded_ops(mod)
    assert (found.count("nn.conv2d"), found.count("nn.batch_norm"), choices) == (2, 0, ["folded"] * 2)
    compare(mod, random(*IMAGE))


def test_branches_are_left_but_for_functions():
    # a region on both sides of an If with regions inside ended TVM's PartitionGraph by a signal
    y, c = relay.var("y", shape=IMAGE), relay.var("c", shape=(), dtype="bool")
    x = relay.var("x", shape=IMAGE)
    branch = relay.Function([y], conv_relu(y, 3))

    def net():
        h = conv_relu(x, 1)
        return relay.Function([c, x], op.add(conv_relu(relay.If(c, conv_relu(h, 2), branch(h)), 4), h))

    for chosen in (True, False):
        report = compare(tvm.IRModule.from_expr(net()), np.array(chosen), random(*IMAGE))
        assert [(d.node.split()[0], d.reason) for d in report.refusals] == [
            ("nn.conv2d", IN_BRANCH), ("nn.relu", IN_BRANCH),
        ]  # fmt: skip


def test_functions_handed_on_after_to_a_normal_form_are_left_with_a_reason():
    y, z = relay.var("y", shape=IMAGE), relay.var("z", shape=IMAGE)
    functions = relay.Tuple([relay.Function([y], conv_relu(y, 1)), relay.Function([z], conv_relu(z, 2))])
    mod = module(lambda x: relay.Call(relay.TupleGetItem(functions, 1), [conv_relu(x, 3)]), IMAGE)
    report = compare(relay.transform.ToANormalForm()(mod), random(*IMAGE))
    assert BOUND in {refusal.reason for refusal in report.refusals}


def test_an_lstm():
    mod, params = lstm.get_workload(2, 16)
    mod = convoy.relay.compile.bind_params(mod, params)
    compare(mod, random(1, 16), random(1, 16, seed=1))


# Functions that call functions -----------------------------------------------------------------------


def calling(body, use):
    """main(x) = use(block, x), where block(v) = body(v)."""
    v, x = relay.var("v", shape=IMAGE), relay.var("x", shape=IMAGE)
    mod = relay.transform.InferType()(
        tvm.IRModule({tvm.ir.GlobalVar("block"): relay.Function([v], body(v))})
    )
    mod["main"] = relay.Function([x], use(mod.get_global_var("block"), x))
    return relay.transform.InferType()(mod)


def test_a_batch_norm_in_a_function_that_is_called_is_folded():
    mod = calling(
        lambda v: op.nn.relu(conv_norm(v, 1)), lambda block, x: op.add(block(x), block(op.exp(x)))
    )
    after = fold()(mod)
    assert {op_name(c) for c in Dataflow(after["block"].body).calls} == {"nn.conv2d", "add", "nn.relu"}
    assert not compare(mod, random(*IMAGE)).refusals


@pytest.mark.parametrize("level", [1, 2])
def test_a_called_function_whose_result_is_a_tuple_of_tuples(level):
    def body(v):
        y = conv_relu(v, 1)
        inner = relay.Tuple([y, op.sigmoid(y)])
        return relay.Tuple([inner, y]) if level == 2 else inner

    def use(block, x):
        found = block(x)
        return op.exp(relay.TupleGetItem(found if level == 1 else relay.TupleGetItem(found, 0), 1))

    assert not compare(calling(body, use), random(*IMAGE)).refusals
    v = relay.var("v", shape=IMAGE)
    inside = module(lambda x: use(relay.Function([v], body(v)), x), IMAGE)
    assert not compare(inside, random(*IMAGE)).refusals


# What is not looked into ---------------------------------------------------------------------------


def test_ops_of_fused_functions_are_left_with_a_reason():
    mod = relay.transform.FuseOps(2)(module(lambda x: conv_relu(conv_relu(x, 1), 2), IMAGE))
    report = compare(mod, random(*IMAGE))
    assert {refusal.reason for refusal in report.refusals} == {UNSEEN}
    assert len(report.refusals) == 4
    assert report.flops_total > report.flops_offloaded == 0


def test_ops_in_a_match_are_left_with_a_reason():
    image = relay.TensorType(IMAGE)
    box = relay.GlobalTypeVar("box")
    full, empty = relay.Constructor("full", [image], box), relay.Constructor("empty", [], box)
    x, held = relay.var("x", image), relay.var("held")
    clauses = [
        Clause(PatternConstructor(full, [PatternVar(held)]), conv_relu(held, 2)),
        Clause(PatternConstructor(empty, []), x),
    ]
    mod = tvm.IRModule()
    mod[box] = relay.TypeData(box, [], [full, empty])
    mod["main"] = relay.Function([x], Match(full(conv_relu(x, 1)), clauses))
    report = compare(mod, random(*IMAGE))
    assert {refusal.reason for refusal in report.refusals} == {UNSEEN}
    assert len(report.refusals) == 4


def test_lets_beside_a_match_are_left_with_a_reason():
    image, box = relay.TensorType(IMAGE), relay.GlobalTypeVar("box")
    full = relay.Constructor("full", [image], box)
    x, a, b, held = relay.var("x", image), relay.var("a"), relay.var("b"), relay.var("held")
    match = Match(full(b), [Clause(PatternConstructor(full, [PatternVar(held)]), op.tanh(held))])
    body = relay.Let(a, conv_relu(x, 1), relay.Let(b, conv_relu(a, 2), op.add(b, match)))
    mod = tvm.IRModule()
    mod[box] = relay.TypeData(box, [], [full])
    mod["main"] = relay.Function([x], body)
    report = compare(mod, random(*IMAGE))
    assert {refusal.reason for refusal in report.refusals} == {BOUND, UNSEEN}
