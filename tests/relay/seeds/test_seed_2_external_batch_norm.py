"""Seed 2: an external function of conv → batch norm → relu, cut out before or after the fold."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import transform
from tvm.relay.op.annotation import compiler_begin, compiler_end

from convoy.relay import NoTouch, fold, no_touch
from convoy.relay.dataflow import op_name
from convoy.relay.partition import external_functions, partition
from relay.relay_modules import random, run, run_plain, weight

IMAGE = (1, 4, 8, 8)


def conv_bn_relu(x: relay.Expr) -> relay.Expr:
    conv = relay.nn.conv2d(x, weight(4, 4, 3, 3), padding=(1, 1), channels=4, kernel_size=(3, 3))
    values = [relay.const(np.linspace(0.5, 1.5, 4).astype(np.float32)) for _ in range(4)]
    return relay.nn.relu(relay.nn.batch_norm(conv, *values)[0])


def module() -> tvm.IRModule:
    x = relay.var("x0", shape=IMAGE)
    return transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], conv_bn_relu(x))))


def ops_inside(cut: tvm.IRModule) -> list[str]:
    """The ops of the only external function, through its composites."""
    (function,) = external_functions(cut).values()
    found: list[str] = []
    relay.analysis.post_order_visit(
        function, lambda node: found.append(op_name(node)) if op_name(node) else None
    )
    return found


def assert_right(cut: tvm.IRModule) -> None:
    with tvm.transform.PassContext(opt_level=3):
        library = relay.build(cut, target="llvm")
    (got,), (want,) = run(library, random(*IMAGE)), run_plain(module(), random(*IMAGE))
    assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()


def test_partitioned_first_the_batch_norm_stays_whole() -> None:
    # TVM's whole optimizer, guarded and watched, and then code generation
    cut = partition(module())
    assert ops_inside(cut) == ["nn.conv2d", "nn.batch_norm", "nn.relu"]
    passes = [transform.SimplifyInference(), transform.FoldConstant(), transform.FoldScaleAxis()]
    with tvm.transform.PassContext(opt_level=3, instruments=[NoTouch()]):
        cut = no_touch(passes)(cut)
    assert ops_inside(cut) == ["nn.conv2d", "nn.batch_norm", "nn.relu"]
    assert_right(cut)


def test_folded_first_it_is_conv_add_relu() -> None:
    # and no multiply on the weights: they are constants, scaled
    cut = partition(fold()(module()))
    assert ops_inside(cut) == ["nn.conv2d", "add", "nn.relu"]
    assert_right(cut)


class ConvBNReluAnnotator(relay.ExprMutator):
    """The annotator of the question: brackets conv → batch norm → relu, constants included."""

    def visit_call(self, call: relay.Call) -> relay.Expr:
        if op_name(call) != "nn.relu" or not isinstance(call.args[0], relay.TupleGetItem):
            return super().visit_call(call)
        norm = call.args[0].tuple_value
        conv = norm.args[0]
        data = compiler_begin(self.visit(conv.args[0]), "convoy")
        inside = relay.Call(conv.op, [data, compiler_begin(conv.args[1], "convoy")], conv.attrs)
        values = [compiler_begin(value, "convoy") for value in norm.args[1:]]
        inside = relay.TupleGetItem(relay.Call(norm.op, [inside, *values], norm.attrs), 0)
        return compiler_end(relay.nn.relu(inside), "convoy")


@pytest.mark.parametrize("folded", [False, True])
def test_the_annotator_of_the_question_works(folded: bool) -> None:
    # PartitionGraph binds the constants again; what the fold turns into an add has no batch norm to find
    before = fold()(module()) if folded else module()
    annotated = tvm.IRModule.from_expr(ConvBNReluAnnotator().visit(before["main"]))
    cut = transform.PartitionGraph()(transform.InferType()(annotated))
    if folded:
        assert not external_functions(cut)
        return
    assert ops_inside(cut) == ["nn.conv2d", "nn.batch_norm", "nn.relu"]
    (function,) = external_functions(cut).values()
    assert len(function.params) == 1, "the constants are inside"
    assert_right(cut)
