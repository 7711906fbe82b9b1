"""What the folds leave alone, and the forms of functions they see through."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm
import tvm_ffi
from fold_modules import assert_same_numbers, const, constants, module, ops, parameters, random
from tvm import relax
from tvm.ir import Call, SourceName, Span
from tvm.script import ir as I
from tvm.script import relax as R

from convoy.relax.fold import fold, fold_scales

op = relax.op
nn = relax.op.nn

X = (1, 4, 5, 5)


def norm(channels):
    return [const(p) for p in parameters(channels)]


def test_nothing_to_fold_gives_the_same_functions():
    # a module without anything to fold keeps its very function objects
    before = module(lambda b, x: b(nn.relu(b(nn.conv2d(x, const(random(6, 4, 1, 1)))))), X)
    before = relax.transform.CanonicalizeBindings()(before)
    assert fold()(before)["main"].same_as(before["main"])


def test_the_input_module_is_not_changed():
    # a pass makes a new module
    before = module(lambda b, x: b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), norm(6)), X)
    copy = tvm.IRModule(before.functions)
    fold()(before)
    tvm.ir.assert_structural_equal(before, copy)


def test_folding_twice_is_folding_once():
    # fold(fold(m)) = fold(m)
    def make(b, x):
        y = b.batch_norm(b(nn.conv2d(x, const(random(4, 4, 3, 3)), padding=1)), norm(4))
        return b(nn.relu(b(op.add(b.batch_norm(x, norm(4)), y))))

    once = fold()(module(make, X))
    tvm.ir.assert_structural_equal(fold()(once), once)


def test_constant_shapes_are_evaluated():
    # add(conv2d, reshape(b, [1, −1, 1, 1]))  =>  add(conv2d, b as [1, C, 1, 1])
    bias = random(6)

    def make(b, x):
        reshaped = b(op.reshape(const(bias), (1, 6, 1, 1)))
        return b(op.add(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), reshaped))

    after = fold()(module(make, X))
    assert ops(after) == ["conv2d", "add"]
    np.testing.assert_array_equal(constants(after)[1], bias.reshape(1, 6, 1, 1))


def test_external_functions_are_left():
    # a function marked for a codegen is not opened
    before = module(lambda b, x: b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), norm(6)), X)
    marked = tvm.IRModule({"main": before["main"].with_attr("Codegen", "other")})
    assert fold()(marked)["main"].same_as(marked["main"])


def test_branches_and_plain_blocks():
    # a conv read inside a branch is bound before it; a fold beside it still happens
    w = relax.const(random(4, 4, 1, 1))
    half = relax.const(np.float32(0.5))

    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(X, "float32"), flag: R.Tensor((), "bool")) -> R.Tensor(X, "float32"):
            y = R.nn.conv2d(x, w)
            z = R.multiply(y, half)
            if flag:
                t = R.nn.relu(z)
                r = t
            else:
                t = R.negative(z)
                r = t
            return r

    after = fold()(Before)
    relax.analysis.well_formed(after)
    assert ops(after) == ["conv2d"]
    for flag in (True, False):
        inputs = [random(*X), np.array(flag)]
        assert_same_numbers(Before, after, *inputs)


def test_two_dataflow_blocks():
    # a value that leaves its block is bound in it
    @I.ir_module
    class Before:
        @R.function
        def main(x: R.Tensor(X, "float32"), y: R.Tensor(X, "float32")) -> R.Tensor(X, "float32"):
            with R.dataflow():
                a = R.add(x, R.const(1.0, "float32"))
                first = R.add(a, R.const(2.0, "float32"))
                R.output(first)
            with R.dataflow():
                b = R.multiply(first, y)
                second = R.nn.relu(b)
                R.output(second)
            return second

    after = fold_scales()(Before)
    relax.analysis.well_formed(after)
    assert ops(after) == ["add", "multiply", "relu"]
    assert_same_numbers(Before, after, random(*X), random(*X, seed=2))


def test_names_of_the_model_survive():
    # conv and bias keep the span of the op they came from
    before = module(lambda b, x: b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), norm(6)), X)
    span = Span(SourceName("conv0"), 0, 0, 0, 0)
    function = before["main"]
    block = function.body.blocks[0]
    first = block.bindings[0]
    call = first.value
    named = Call(call.op, call.args, call.attrs, call.ty_args, span)
    builder = relax.BlockBuilder()
    bindings = [relax.VarBinding(first.var, builder.normalize(named)), *block.bindings[1:]]
    body = builder.normalize(relax.SeqExpr([relax.DataflowBlock(bindings)], function.body.body))
    named_function = relax.Function(function.params, body, function.ret_ty, attrs=function.attrs)
    before = tvm.IRModule({"main": named_function})
    after = fold()(before)
    names = [b.value.span.source_name.name for b in after["main"].body.blocks[0].bindings]
    assert names == ["conv0", "conv0"]


@pytest.mark.slow
def test_a_large_network_folds_fast():
    # 60 conv + batch norm pairs, 60 MB of weights: the time grows with the bytes, not with the patterns
    weight = const(random(512, 512, 1, 1))

    def make(b, x):
        for _ in range(60):
            x = b.batch_norm(b(nn.conv2d(x, weight)), norm(512))
        return x

    before = module(make, (1, 512, 2, 2))
    start = time.perf_counter()
    after = fold()(before)
    assert time.perf_counter() - start < 3
    assert ops(after) == ["conv2d", "add"] * 60


@tvm_ffi.register_global_func("test.add_one_to_it", override=True)
def _add_one_to_it(x):
    x.copyfrom(x.numpy() + 1)
    return x


def test_nothing_is_read_behind_what_may_write_to_it():
    # a is of x before the call, b behind it: a convolution or a transpose that is held back is bound before
    w = const(random(4, 4, 1, 1))

    @I.ir_module
    class Before:
        @R.function(pure=False)
        def main(x: R.Tensor(X, "float32")) -> R.Tensor(X, "float32"):
            y = R.tanh(x)
            last = R.permute_dims(y, [0, 2, 3, 1])
            a = R.nn.conv2d(y, w)
            _ = R.call_packed("test.add_one_to_it", y, ty_args=[R.Tensor(X, "float32")])
            b = R.nn.conv2d(y, w)
            c = R.permute_dims(R.nn.relu(last), [0, 3, 1, 2])
            return R.add(R.add(a, b), c)

    x = random(*X)
    assert_same_numbers(Before, fold()(Before), x)
