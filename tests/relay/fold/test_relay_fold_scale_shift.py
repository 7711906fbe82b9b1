"""Relay: scales and shifts into the weight and one bias of the anchor beside them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_fold_modules import (
    as_bias,
    assert_same_numbers,
    check,
    check_module,
    check_untouched,
    const,
    constants,
    module,
    norm,
    ops,
    parameters,
    per_channel,
    random,
)
from tvm import relay

from convoy.relay.dataflow import Dataflow, composite_name, op_name
from convoy.relay.fold import fold
from convoy.report.decision import Report

nn = relay.nn
X = (1, 4, 5, 5)
W = random(6, 4, 3, 3)
S, T = random(6, seed=1), random(6, seed=2)


def conv(x, w=W, **attrs):
    return nn.conv2d(x, const(w), channels=w.shape[0], kernel_size=w.shape[2:], **attrs)


def scaled(s):
    return W * np.asarray(s, np.float32).reshape(-1, 1, 1, 1)


# Backward: after the conv.


@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (6, 1, 1)])
@pytest.mark.parametrize("left", [False, True])
def test_channel_scale(shape, left):
    # conv2d(x, w) · s, s per channel on either side  =>  conv2d(x, w·s)
    s = const(S.reshape(shape))
    before = module(lambda x: s * conv(x) if left else conv(x) * s, X)
    check_module(before, module(lambda x: conv(x, scaled(S)), X))


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1, 1)])
@pytest.mark.parametrize("left", [False, True])
def test_scalar_scale(shape, left):
    # conv2d(x, w) · 0.5, 0.5 · conv2d(x, w)  =>  conv2d(x, 0.5·w)
    half = const(np.full(shape, 0.5))
    before = module(lambda x: half * conv(x) if left else conv(x) * half, X)
    check_module(before, module(lambda x: conv(x, W * np.float32(0.5)), X))


@pytest.mark.parametrize("shape", [(1, 1, 1, 3), (1, 6, 3, 3), (3,)])
@pytest.mark.parametrize("make", [relay.multiply, relay.add])
def test_other_shapes_stay(shape, make):
    # conv2d · (1, 1, 1, W), conv2d + (1, C, H, W): neither a scale nor a bias
    check_untouched(module(lambda x: make(conv(x), const(random(*shape))), X))


def test_expanding_constant_stays():
    # [1, 1, H, W] · (1, 6, 1, 1) makes six channels of one: no scale of the conv
    check_untouched(module(lambda x: conv(x, random(1, 4, 3, 3)) * as_bias(S), X))


def test_products_of_constants():
    # (conv2d · a) · b  =>  conv2d(x, w·a·b)
    before = module(lambda x: conv(x) * per_channel(S) * per_channel(T), X)
    check_module(before, module(lambda x: conv(x, scaled(S * T)), X))


def test_sub_and_div():
    # (conv2d − a) / b  =>  conv2d(x, w/b) − a/b
    before = module(lambda x: (conv(x) - per_channel(T)) / per_channel(S), X)
    check_module(before, module(lambda x: conv(x, scaled(1 / S)) + as_bias(-T / S), X))


def test_constant_minus_conv():
    # a − conv2d  =>  conv2d(x, −w) + a
    before = module(lambda x: per_channel(T) - conv(x), X)
    check_module(before, module(lambda x: conv(x, -W) + as_bias(T), X))


def test_constant_over_conv_stays():
    check_untouched(module(lambda x: per_channel(T) / conv(x), X))


def test_adds_in_a_row():
    # conv2d + a + b  =>  conv2d + (a + b)
    before = module(lambda x: nn.bias_add(conv(x), const(S)) + per_channel(T), X)
    check_module(before, module(lambda x: conv(x) + as_bias(S + T), X))


@pytest.mark.parametrize("left", [False, True])
def test_adds_in_a_row_without_a_conv(left):
    # relu(x) + a + b, b + (a + relu(x))  =>  relu(x) + (a + b)
    a, b = random(4), random(4, seed=1)

    def before(x):
        y = nn.relu(x)
        return per_channel(b) + (per_channel(a) + y) if left else y + per_channel(a) + per_channel(b)

    check_module(module(before, X), module(lambda x: nn.relu(x) + as_bias(a + b), X))


def test_shared_add_stays_shared():
    # y = x + a; y + b and relu(y): y is read twice, so both adds stay
    def make(x):
        y = x + per_channel(random(4))
        return relay.Tuple([y + per_channel(random(4, seed=3)), nn.relu(y)])

    assert sorted(ops(fold()(module(make, X)))) == ["add", "add", "relu"]


def test_scale_behind_a_constant_for_every_element():
    # clip((conv + whole) · s + b)  =>  clip(conv + whole): the constant takes scale and shift, too
    def make(x):
        added = relay.add(conv(x), const(random(1, 6, 3, 3)))
        return relay.clip(
            relay.add(relay.multiply(added, const(random(6, 1, 1))), const(random(6, 1, 1))), 0, 6
        )

    check(module(make, X), ["conv2d", "add", "clip"])


def test_one_add_stays_as_it_was_written():
    check_untouched(module(lambda x: nn.relu(conv(x) + as_bias(T)), X))


def test_scale_of_relu():
    # relu(conv2d) · s with s > 0  =>  relu(conv2d(x, w·s))
    before = module(lambda x: nn.relu(conv(x)) * per_channel(np.abs(S)), X)
    check_module(before, module(lambda x: nn.relu(conv(x, scaled(np.abs(S)))), X))


def test_negative_scale_does_not_cross_relu():
    # relu(conv2d) · s with some s < 0 stays
    report = check_untouched(module(lambda x: nn.relu(conv(x)) * per_channel(S), X))
    assert "to cross relu" in report.decisions[0].reason


def test_bn_after_relu():
    # batch_norm(relu(conv2d)): a negative gamma keeps the multiply, a positive one folds the scale
    gamma, *rest = parameters(6)
    check(
        module(lambda x: norm(nn.relu(conv(x)), [gamma, *rest]), X), ["conv2d", "relu", "multiply", "add"]
    )
    check(module(lambda x: norm(nn.relu(conv(x)), [np.abs(gamma), *rest]), X), ["conv2d", "relu", "add"])


POOLS = {
    "max": (lambda x: nn.max_pool2d(x, (2, 2), (2, 2), padding=(1, 1)), 1.0, True),
    "max, negative": (lambda x: nn.max_pool2d(x, (2, 2)), -1.0, False),
    "avg": (lambda x: nn.avg_pool2d(x, (2, 2), padding=(1, 1)), -1.0, True),
    "avg, counting its padding": (
        lambda x: nn.avg_pool2d(x, (2, 2), padding=(1, 1), count_include_pad=True), -1.0, False
    ),
    "global": (nn.global_avg_pool2d, -1.0, True),
    "mean": (lambda x: relay.mean(x, [2, 3], keepdims=True), -1.0, True),
}  # fmt: skip


@pytest.mark.parametrize("name", POOLS)
def test_bn_after_pool(name):
    # batch_norm(pool(conv2d))  =>  pool(conv2d + bias) where the pool lets the map through
    pool, sign, folds = POOLS[name]
    values = [np.full(6, sign, np.float32), *parameters(6)[1:]]
    before = module(lambda x: norm(pool(conv(x)), values), X)
    after = fold()(before)
    assert (ops(after)[1] == "add") == folds
    assert len(ops(after)) == (3 if folds or "counting" in name else 4)
    assert_same_numbers(before, after, random(*X))


PIXEL_POOLS = {
    "max": (lambda x: nn.max_pool2d(x, (3, 3), (1, 1), padding=(1, 1)), (4, 5, 5)),
    "avg": (lambda x: nn.avg_pool2d(x, (3, 3), (1, 1), padding=(1, 1)), (4, 5, 5)),
    "max, fewer pixels": (lambda x: nn.max_pool2d(x, (1, 1), (2, 2)), (4, 3, 3)),
    "adaptive": (lambda x: nn.adaptive_avg_pool2d(x, (2, 2)), (4, 2, 2)),
}


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("name", PIXEL_POOLS)
def test_only_a_map_along_channels_crosses_a_pool(name, axis):
    # conv2d(pool(s · x))  =>  conv2d(pool(x)) where s is of channels; pixels the pool mixes
    pool, shape = PIXEL_POOLS[name]
    w = random(6, shape[axis - 1], 1, 1)
    s = np.abs(random(X[axis])).reshape([X[i] if i == axis else 1 for i in range(4)]) + np.float32(0.5)
    order = [0, axis, *(i for i in (1, 2, 3) if i != axis)]

    def make(x):
        return conv(relay.transpose(pool(x * const(s)), order), w)

    before = module(make, X)
    after = fold()(before)
    assert ("multiply" in ops(after)) == (axis != 1)
    assert_same_numbers(before, after, random(*X))


# Residual adds and concats.


def test_scale_goes_into_both_branches():
    # (conv₁ + conv₂) · s + t  =>  conv₁·s + t, conv₂·s, added
    v = random(6, 4, 3, 3, seed=6)
    s = S.reshape(-1, 1, 1, 1)
    check_module(
        module(lambda x: (conv(x) + conv(x, v)) * per_channel(S) + per_channel(T), X),
        module(lambda x: (conv(x, W * s) + as_bias(T)) + conv(x, v * s), X),
    )


def test_nothing_folds_on_one_side():
    # (conv2d(x) + x) · s stays: x cannot be scaled
    w = random(4, 4, 3, 3)
    before = module(lambda x: (conv(x, w, padding=(1, 1)) + x) * per_channel(random(4)), X)
    assert "only one branch" in check_untouched(before).decisions[0].reason


@pytest.mark.parametrize("first", ["conv", "input"])
def test_a_shift_stays_behind_an_add_that_broadcasts(first):
    # (conv2d(x) of one channel + y) + bias stays: neither operand has all channels and takes a shift
    def make(x, y):
        one = conv(x, random(1, 4, 3, 3))
        total = one + y if first == "conv" else y + one
        return nn.bias_add(total, const(random(6)))

    height, width = X[2] - 2, X[3] - 2
    before = module(make, X, (1, 6, height, width))
    after = fold()(before)
    assert sum("add" in name for name in ops(after)) == 2
    assert_same_numbers(before, after, random(*X), random(1, 6, height, width))


@pytest.mark.parametrize(("weights", "scale"), [(1e20, 1e20), (1e-25, 1e-25)])
def test_a_scale_that_no_float32_weight_can_take_stays(weights, scale):
    before = module(lambda x: conv(x, W * np.float32(weights)) * const(scale), X)
    assert "expected the scaled fp32 weight of" in check_untouched(before).decisions[0].reason


def test_a_channel_may_vanish_beside_others():
    scales = np.ones((6, 1, 1), np.float32)
    scales[2] = 1e-42
    before = module(lambda x: conv(x) * const(scales), X)
    assert "multiply" not in ops(fold()(before))


def test_residual_bn():
    # relu(batch_norm(conv2d(x)) + x)  =>  conv2d, bias, residual add, relu
    w = random(4, 4, 3, 3)
    before = module(lambda x: nn.relu(norm(conv(x, w, padding=(1, 1)), parameters(4)) + x), X)
    check(before, ["conv2d", "add", "add", "relu"])


def test_skip_made_from_the_conv():
    # exp(y) + y with y = conv2d + b: one conv, read by two
    def make(x):
        y = conv(x) + per_channel(T)
        return relay.exp(y) + y

    after = fold()(module(make, X))
    assert ops(after) == ["conv2d", "add", "exp", "add"]
    convs = [node for node in Dataflow(after["main"].body).nodes if op_name(node) == "nn.conv2d"]
    assert len(convs) == 1


def test_bn_after_concat():
    # batch_norm(concat(conv₁, conv₂))  =>  concat(conv₁ + bias, conv₂ + bias)
    def make(x):
        joined = relay.concatenate([conv(x), conv(x, random(2, 4, 3, 3))], axis=1)
        return norm(joined, parameters(8))

    check(module(make, X), ["conv2d", "add", "conv2d", "add", "concatenate"])


def test_bn_after_concat_with_an_input():
    # batch_norm(concat(conv, x)): x cannot be scaled, so it becomes one multiply and one add
    def make(x):
        return norm(relay.concatenate([conv(x, padding=(1, 1)), x], axis=1), parameters(10))

    check(module(make, X), ["conv2d", "concatenate", "multiply", "add"])


def test_a_tuple_read_twice():
    # two concats of one tuple: its fields are not scaled for one of them
    def make(x):
        pair = relay.Tuple([conv(x), conv(x, random(6, 4, 3, 3, seed=4))])
        return relay.concatenate(pair, 1) * per_channel(random(12)) + relay.concatenate(pair, 1)

    after = fold()(module(make, X))
    np.testing.assert_array_equal(constants(after)[0], W)
    assert_same_numbers(module(make, X), after, random(*X))


# Forward: before the conv.


def weight(*shape):
    return const(random(*shape))


FORWARD = {
    "padded": lambda x: conv(x, padding=(1, 1)),
    "grouped": lambda x: nn.conv2d(x, weight(6, 2, 3, 3), groups=2, padding=(1, 1), channels=6),
    "depthwise": lambda x: nn.conv2d(x, weight(4, 1, 3, 3), groups=4, padding=(1, 1), channels=4),
    "depthwise, multiplier 2": lambda x: nn.conv2d(x, weight(8, 1, 3, 3), groups=4, channels=8),
    "transpose": lambda x: nn.conv2d_transpose(x, weight(4, 6, 2, 2), channels=6, kernel_size=(2, 2)),
    "grouped transpose": lambda x: nn.conv2d_transpose(
        x, weight(4, 3, 2, 2), groups=2, channels=6, kernel_size=(2, 2)
    ),
}


@pytest.mark.parametrize("name", FORWARD)
def test_scale_before_conv(name):
    # conv2d(x · s, w), padded or not  =>  conv2d(x, w·s) over the input channels of each group
    before = module(lambda x: FORWARD[name](x * per_channel(random(4))), X)
    after = fold()(before)
    assert len(ops(after)) == 1
    if name != "grouped transpose":  # TVM does not compile that one
        assert_same_numbers(before, after, random(*X))


def test_bn_before_unpadded_conv():
    # conv2d(batch_norm(x), w) without padding  =>  conv2d(x, w·s) + Σ w·t
    check(module(lambda x: conv(norm(x, parameters(4))), X), ["conv2d", "add"])


def test_bn_on_both_sides():
    # batch_norm(conv2d(batch_norm(x), w) + b)  =>  one conv, one bias
    def make(x):
        return norm(conv(norm(x, parameters(4))) + per_channel(T), parameters(6))

    check(module(make, X), ["conv2d", "add"])


def test_shift_before_dense():
    # dense(x · s + t, w)  =>  dense(x, w·s) + w·t
    def make(x):
        return nn.dense(x * const(random(5)) + const(random(5, seed=2)), const(random(6, 5)))

    check(module(make, (3, 5)), ["dense", "add"])


def test_shift_before_padded_conv_stays():
    # conv2d(x + t, w, padding=1) stays: the padding is not shifted
    before = module(lambda x: conv(x + as_bias(random(4)), padding=(1, 1)), X)
    assert "zeros are not shifted" in check_untouched(before).decisions[0].reason


def test_zero_shift_before_padded_conv():
    # conv2d(x · s + 0, w, padding=1)  =>  conv2d(x, w·s)
    def make(x):
        return conv(x * per_channel(random(4)) + per_channel(np.zeros(4)), padding=(1, 1))

    check(module(make, X), ["conv2d"])


def test_shift_before_transpose_stays():
    # conv2d_transpose(x + t): border pixels sum fewer taps
    check_untouched(module(lambda x: FORWARD["transpose"](x + as_bias(random(4))), X))


def test_scale_read_twice_does_not_rise():
    # y = x · s; conv2d(y) and relu(y): y is needed as it is
    def make(x):
        y = x * per_channel(random(4))
        return relay.Tuple([conv(y), nn.relu(y)])

    after = fold()(module(make, X))
    assert sorted(ops(after)) == ["conv2d", "multiply", "relu"]


def test_scale_rises_through_relu_and_pool():
    # conv2d(max_pool(relu(x · s))) with s > 0  =>  conv2d(max_pool(relu(x)), w·s)
    s = np.abs(random(4)) + 0.1
    check_module(
        module(lambda x: conv(nn.max_pool2d(nn.relu(x * per_channel(s)), (2, 2))), X),
        module(lambda x: conv(nn.max_pool2d(nn.relu(x), (2, 2)), W * s.reshape(1, -1, 1, 1)), X),
    )


def test_negative_scale_does_not_rise_through_relu():
    # conv2d(relu(x · s)) with some s < 0 stays
    check_untouched(module(lambda x: conv(nn.relu(x * as_bias(random(4)))), X))


def test_hard_swish_stays_whole():
    # conv2d(x · clip(x + 3, 0, 6) / 6): the division belongs to the activation
    def make(x):
        return conv(x * relay.clip(x + const(3.0), 0, 6) / const(6.0))

    check_untouched(module(make, X))


# What the walk leaves alone.


def test_external_functions_are_left():
    # a function marked for a codegen is not opened, nor a composite where it is written
    before = module(lambda x: norm(conv(x), parameters(6)), X)
    marked = relay.transform.InferType()(
        type(before)({"main": before["main"].with_attr("Compiler", "other")})
    )
    tvm.ir.assert_structural_equal(fold()(marked), marked)

    def make(x):
        y = relay.var("y", shape=X)
        composite = relay.Function([y], norm(conv(y), parameters(6))).with_attr("Composite", "other.conv")
        return norm(relay.Call(composite, [x]), parameters(6))

    after = fold()(module(make, X))
    assert ops(after) == ["multiply", "add"]
    inside = next(n.op for n in Dataflow(after["main"].body).nodes if composite_name(n))
    assert "nn.batch_norm" in [op_name(call) for call in Dataflow(inside.body).calls]


def test_branches():
    # a value read in a branch and a fold beside it
    def make(x):
        y = conv(x) * per_channel(S)
        flag = relay.greater(relay.max(x), const(0.5))
        return relay.If(flag, nn.relu(y), relay.negative(y))

    before = module(make, X)
    after = fold()(before)
    assert ops(after).count("conv2d") == 1
    for scale in (0.1, 1.0):
        executors = [relay.create_executor("vm", mod=mod).evaluate() for mod in (before, after)]
        want, got = (run(scale * random(*X)).numpy() for run in executors)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_a_value_added_to_itself_is_doubled():
    # y + y  =>  2·y, in the weight; TVM's SimplifyExpr would compute the conv twice
    def make(x):
        y = conv(x)
        return nn.relu(y + y)

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "relu"]
    np.testing.assert_array_equal(constants(after)[0], 2 * W)
    assert_same_numbers(before, after, random(*X))


def test_a_sum_of_equal_calls_is_no_value_added_to_itself():
    # conv(x) + conv(x), two calls  =>  as they are
    before = module(lambda x: conv(x) + conv(x), X)
    after = fold()(before)
    assert ops(after).count("multiply") == 0
    assert_same_numbers(before, after, random(*X))


def test_a_product_before_a_sum_with_itself():
    # clip(dense(x · s)), added to itself: SimplifyExpr ends with free variables
    def make(x):
        y = relay.clip(nn.dense(x * const(random(6)), const(random(4, 6))), 0.0, 6.0)
        return y + y

    before = module(make, (3, 6))
    after = fold()(before)
    with tvm.transform.PassContext(opt_level=1):
        assert_same_numbers(before, after, random(3, 6))


def test_names_of_the_model_survive():
    # conv and bias keep the span of the op they came from, and the report says the name
    before = module(lambda x: norm(conv(x), parameters(6)), X)
    span = relay.Span(relay.SourceName("conv0"), 1, 1, 0, 0)
    function = before["main"]
    named = relay.op.nn.conv2d(function.params[0], const(W), channels=6, kernel_size=(3, 3))
    named = relay.Call(named.op, named.args, named.attrs, None, span)
    report = Report()
    after = fold(report)(module_of(function.params[0], norm(named, parameters(6))))
    spans = [call.span.source_name.name for call in Dataflow(after["main"].body).calls]
    assert spans == ["conv0", "conv0"]
    assert "into conv2d conv0" in report.decisions[0].reason


def module_of(x, body):
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))
