"""Partitioning beside what stays: ops that are left, other backends, what was partitioned before."""

from __future__ import annotations

import pytest
import tvm
from relay_modules import Cut, module, weight
from tvm import relay
from tvm.relay import op
from tvm.relay.op.contrib import get_pattern_table

import convoy
from convoy.options import Options
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.partition import external_functions, partition
from convoy.report.decision import Report

IMAGE = (1, 4, 8, 8)


def conv_relu(x):
    return op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3), channels=4, kernel_size=(3, 3)))


@pytest.mark.parametrize("biased", [False, True])
def test_of_two_convolutions_added_the_left_one_stays_out(biased):
    # %0 is excluded: TVM's matcher would make conv2d_add of it, the first operand, all the same; the
    # second convolution takes the add, with what TVM computes as its residual
    def make(x):
        first, second = (op.nn.conv2d(x, weight(4, 4, 3, 3, seed=s)) for s in (1, 2))
        if biased:
            first, second = (op.nn.bias_add(y, weight(4, seed=s)) for s, y in ((3, first), (4, second)))
        return op.nn.relu(op.add(first, second))

    cut = Cut(make, IMAGE, options=Options(exclude=frozenset({"%0"})))
    assert cut.left.count("nn.conv2d") == 1
    assert cut.reasons.count("excluded by name") == 1
    assert [name for inside in cut.composites for name in inside if "conv2d" in name] == [
        "conv2d_bias_add_relu" if biased else "conv2d_add_relu"
    ]


def test_a_backend_gets_no_op_it_refused():
    def make(x):
        five = op.nn.conv2d(x, weight(4, 4, 5, 5), padding=(2, 2))
        return op.add(five, op.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1)))

    def refuse(call):
        return "3x3 only" if call.op.name == "nn.conv2d" and int(call.attrs.padding[0]) == 2 else None

    cut = partition(module(make, IMAGE), codegen="acme", refuse=refuse)
    left = Dataflow(cut["main"].body).calls
    assert [int(call.attrs.padding[0]) for call in left if op_name(call) == "nn.conv2d"] == [2]


def test_numbers_are_new_each_time():
    # named %N by the first partitioning, an op left then is named by its new number in the second
    def refuse(call):
        return "no" if call.op.name != "nn.max_pool2d" else None

    def make(x):
        return op.nn.max_pool2d(op.nn.relu(op.nn.conv2d(x, weight(4, 4, 3, 3))), (2, 2))

    first, second = Report(), Report()
    again = partition(module(make, IMAGE), None, first, codegen="acme", refuse=refuse)
    partition(again, None, second)
    assert sorted(d.node for d in first.decisions) == ["nn.conv2d %0", "nn.max_pool2d %2", "nn.relu %1"]
    assert sorted(d.node for d in second.decisions) == ["nn.conv2d %0", "nn.relu %1"]


def test_a_codegen_of_tvms_own_keeps_its_annotator():
    def annotated(mod):
        table = get_pattern_table("dnnl")
        passes = [relay.transform.MergeComposite(table), relay.transform.AnnotateTarget("dnnl")]
        marked = tvm.transform.Sequential([*passes, relay.transform.PartitionGraph()])(mod)
        return [var.name_hint for var in marked.get_global_vars()]

    mod = module(lambda x: op.nn.conv2d(x, weight(4, 4, 3, 3), channels=4, kernel_size=(3, 3)), IMAGE)
    before = annotated(mod)
    assert len(before) == 2
    partition(mod, codegen="dnnl", refuse=lambda _: "nothing")
    assert annotated(mod) == before


def test_what_was_cut_out_and_written_where_it_is_called_stays():
    # as after relay.optimize
    cut = convoy.relay.partition_for_convoy(module(conv_relu, IMAGE), merge=False)
    optimized, _ = relay.optimize(cut, "llvm")
    assert not external_functions(optimized)
    again = partition(optimized)
    tvm.ir.assert_structural_equal(again["main"], optimized["main"])
