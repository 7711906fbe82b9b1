"""Relay: batch norm into the anchor before it."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_fold_modules import (
    EPSILON,
    as_bias,
    assert_same_numbers,
    check,
    check_module,
    check_untouched,
    const,
    constants,
    largest_error,
    module,
    norm,
    ops,
    parameters,
    per_channel,
    random,
    run,
    scale_shift,
)
from tvm import relay
from tvm.contrib import graph_executor

from convoy.relay.fold import fold
from convoy.report.decision import Report

nn = relay.nn
X = (1, 4, 5, 5)
W = random(6, 4, 3, 3)


def conv(x, w=W, **attrs):
    return nn.conv2d(x, const(w), channels=w.shape[0], kernel_size=w.shape[2:], **attrs)


@pytest.mark.parametrize("batch", [1, "n"])
def test_conv_bn(batch):
    # batch_norm(conv2d(x, w))  =>  conv2d(x, w·s) + t, also for a dynamic batch
    s, t = scale_shift(6)
    shape = (batch, 4, 5, 5)
    report = check_module(
        module(lambda x: norm(conv(x), parameters(6)), shape),
        module(lambda x: relay.add(conv(x, W * s.reshape(-1, 1, 1, 1)), as_bias(t)), shape),
    )
    assert [d.choice for d in report.decisions] == ["folded"]


def test_conv_bn_numbers():
    check(module(lambda x: norm(conv(x), parameters(6)), X), ["conv2d", "add"])


@pytest.mark.parametrize("bias", ["bias_add", "add"])
def test_conv_bias_bn_add_is_one_bias(bias):
    # batch_norm(conv2d(x, w) + b) + c  =>  conv2d(x, w·s) + ((b − μ)·s + β + c): one add, not two
    b, c = random(6, seed=1), random(6, seed=2)
    s, t = scale_shift(6)

    def before(x):
        y = nn.bias_add(conv(x), const(b)) if bias == "bias_add" else conv(x) + per_channel(b)
        return nn.relu(norm(y, parameters(6)) + per_channel(c))

    def after(x):
        return nn.relu(conv(x, W * s.reshape(-1, 1, 1, 1)) + as_bias(b * s + t + c))

    check_module(module(before, X), module(after, X))


def test_bn_decomposed_by_tvm():
    # what SimplifyInference makes of a batch norm  =>  conv2d + bias
    before = module(lambda x: norm(conv(x), parameters(6)), X)
    check(relay.transform.SimplifyInference()(before), ["conv2d", "add"])


def weight(*shape):
    return const(random(*shape))


ANCHORS = {
    "depthwise": lambda x: nn.conv2d(x, weight(4, 1, 3, 3), groups=4, padding=(1, 1)),
    "depthwise, multiplier 2": lambda x: nn.conv2d(x, weight(8, 1, 3, 3), groups=4, channels=8),
    "grouped": lambda x: nn.conv2d(x, weight(6, 2, 3, 3), groups=2),
    "transpose": lambda x: nn.conv2d_transpose(
        x, weight(4, 6, 3, 3), strides=(2, 2), channels=6, kernel_size=(3, 3)
    ),
    "transpose, grouped": lambda x: nn.conv2d_transpose(
        x, weight(4, 3, 3, 3), groups=2, channels=6, kernel_size=(3, 3)
    ),
    "conv1d": lambda x: nn.conv1d(relay.reshape(x, (1, 4, 25)), weight(6, 4, 3)),
    "conv1d_transpose": lambda x: nn.conv1d_transpose(
        relay.reshape(x, (1, 4, 25)), weight(4, 6, 3), channels=6, kernel_size=(3,)
    ),
    "conv3d": lambda x: nn.conv3d(relay.reshape(x, (1, 1, 4, 5, 5)), weight(6, 1, 2, 2, 2)),
    "dense": lambda x: nn.dense(relay.reshape(x, (4, 25)), weight(6, 25)),
    "matmul": lambda x: nn.matmul(relay.reshape(x, (4, 25)), weight(25, 6)),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_every_anchor(name):
    # batch_norm(anchor)  =>  anchor + bias, for each kind, weight layout and grouping
    plain = module(ANCHORS[name], X)
    channels = int(plain["main"].ret_type.shape[1])
    before = module(lambda x: norm(ANCHORS[name](x), parameters(channels)), X)
    after = fold()(before)
    assert ops(after) == [*ops(fold()(plain)), "add"]
    assert_same_numbers(before, after, random(*X))


@pytest.mark.parametrize(("scale", "center"), [(False, True), (True, False), (False, False)])
def test_scale_and_center_off(scale, center):
    # batch_norm(scale=False) ignores gamma, batch_norm(center=False) ignores beta
    gamma, beta, mean, variance = (p.astype(np.float64) for p in parameters(6))
    after = fold()(module(lambda x: norm(conv(x), parameters(6), scale=scale, center=center), X))
    assert ops(after) == ["conv2d", "add"]
    s = (gamma if scale else 1.0) / np.sqrt(variance + EPSILON)
    t = (beta if center else 0.0) - mean * s
    np.testing.assert_allclose(constants(after)[0], W * s.reshape(-1, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(constants(after)[1].ravel(), t, rtol=1e-5)


def test_zero_gamma_and_tiny_variance():
    # gamma = 0 and variance 1e-12 give finite, right numbers: the math is float64
    gamma, beta, mean, _ = parameters(6)
    gamma[2] = 0
    values = [gamma, beta, mean * 1e-3, np.full(6, 1e-12, np.float32)]
    after = fold()(module(lambda x: norm(conv(x), values, epsilon=1e-9), X))
    assert ops(after) == ["conv2d", "add"]
    g, be, m, v = (value.astype(np.float64) for value in values)
    s = g / np.sqrt(v + 1e-9)
    np.testing.assert_allclose(constants(after)[0], W * s.reshape(-1, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(constants(after)[1].ravel(), be - m * s, rtol=1e-6)


def built_at_level_3(mod):
    with tvm.transform.PassContext(opt_level=3):
        executor = graph_executor.GraphModule(relay.build(mod, target="llvm")["default"](tvm.cpu()))
    executor.run(x0=random(*X))
    return executor.get_output(0).numpy()


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_zero_gamma_before_a_conv(relu, padding):
    # conv2d([relu] batch_norm(x)) with a zero gamma: plain relay.build at opt_level 3 makes NaN of it
    gamma, *rest = parameters(4)
    gamma[1] = 0

    def make(x):
        y = norm(x, [gamma, *rest])
        return conv(nn.relu(y) if relu else y, padding=(padding, padding))

    before = module(make, X)
    want = run(before, random(*X))[0]
    assert np.isfinite(want).all()
    assert np.isnan(built_at_level_3(before)).any() == (not relu), "TVM has changed: adapt the docs of fold"
    after = fold()(before)
    assert ops(after) == (["multiply", "bias_add", "relu", "conv2d"] if relu else
                          ["multiply", "bias_add", "conv2d"] if padding else ["conv2d", "add"])  # fmt: skip
    assert largest_error(run(after, random(*X))[0], want) < 2e-6
    assert largest_error(built_at_level_3(after), want) < 1e-5, "TVM's FoldScaleAxis spoiled the rest"


def test_bn_over_another_axis():
    # batch_norm(axis=3) over NCHW does not fold: one multiply, one add
    before = module(lambda x: norm(conv(x, padding=(1, 1)), parameters(5), axis=3), X)
    check(before, ["conv2d", "multiply", "add"])


def test_conv_read_twice():
    # batch_norm(conv) + conv: the shared weight is not scaled, the conv stays one
    def make(x):
        y = conv(x)
        return norm(y, parameters(6)) + nn.relu(y)

    report = check(module(make, X), ["conv2d", "multiply", "add", "relu", "add"])
    assert "read 2 times" in report.decisions[0].reason


@pytest.mark.parametrize("transpose_b", [True, False])
def test_a_batch_matmul_of_one_matrix(transpose_b):
    # batch_norm(batch_matmul)  =>  one batch_matmul, one bias; a scale before it goes into the rows
    weights = const(random(1, 6, 7) if transpose_b else random(1, 7, 6))

    def make(x):
        scaled = relay.multiply(x, const(random(7)))
        product = nn.batch_matmul(scaled, weights, transpose_b=transpose_b)
        return norm(product, parameters(6), axis=2)

    check(module(make, (1, 5, 7)), ["batch_matmul", "add"])
    check(module(make, (3, 5, 7)), ["batch_matmul", "add"])


def test_a_batch_matmul_of_several_matrices_is_named():
    # batch_norm(batch_matmul)  =>  one multiply, one add, and the reason is not that there is no matmul
    def make(x):
        return norm(nn.batch_matmul(x, const(random(2, 6, 7))), parameters(6), axis=2)

    report = check(module(make, (2, 5, 7)), ["batch_matmul", "multiply", "add"])
    assert "expected one weight in a known layout in batch_matmul" in report.decisions[0].reason


def test_what_is_no_anchor_is_not_named():
    # batch_norm(sigmoid(x))  =>  one multiply, one add
    report = check(
        module(lambda x: norm(relay.sigmoid(x), parameters(4)), X), ["sigmoid", "multiply", "add"]
    )
    assert "its input is not made by a convolution or matmul" in report.decisions[0].reason


def whole_norm(x):
    return nn.batch_norm(conv(x), *[relay.const(value) for value in parameters(6)], epsilon=EPSILON)


def test_a_result_taken_twice():
    # bn = batch_norm(conv); relu(bn[0]) + bn[0], two nodes  =>  one conv, one bias
    def make(x):
        bn = whole_norm(x)
        return nn.relu(bn[0]) + bn[0]

    report = check(module(make, X), ["conv2d", "add", "relu", "add"])
    assert [d.choice for d in report.decisions] == ["folded"]


def test_statistics_taken_twice():
    # bn[1], bn[1] + bn[0], bn[0], each a node of its own  =>  they are the constant and the conv
    def make(x):
        bn = whole_norm(x)
        return relay.Tuple([bn[1], relay.reshape(bn[1], (6, 1, 1)) + bn[0], bn[0]])

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "add", "add"]
    assert_same_numbers(before, after, random(*X))


def test_a_result_taken_twice_and_scaled_once():
    # (bn[0] · 2, bn[0])  =>  the conv has the norm's scale only
    def make(x):
        bn = whole_norm(x)
        return relay.Tuple([bn[0] * const(2.0), bn[0]])

    report = check(module(make, X), ["conv2d", "add", "multiply"])
    assert "read 2 times" in report.decisions[-1].reason


def test_a_whole_tuple_is_left():
    # relu(bn[0]) and bn itself as a result  =>  not folded, the reason says so
    def make(x):
        bn = whole_norm(x)
        return relay.Tuple([nn.relu(bn[0]), bn[0], bn.astuple()])

    report = Report()
    fold(report)(module(make, X))
    assert "got the whole tuple" in report.decisions[0].reason


def test_a_conv_that_is_an_output():
    # (batch_norm(conv), conv): one conv, its weight as it was
    def make(x):
        y = conv(x)
        return relay.Tuple([norm(y, parameters(6)), y])

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "multiply", "add"]
    np.testing.assert_array_equal(constants(after)[0], W)
    assert_same_numbers(before, after, random(*X))


def test_two_bns_of_one_conv():
    # batch_norm₁(conv) · batch_norm₂(conv): one conv, its weight as it was, two multiplies and two adds
    def make(x):
        y = conv(x)
        return norm(y, parameters(6)) * norm(y, parameters(6, seed=3))

    before = module(make, X)
    after = fold()(before)
    assert ops(after).count("conv2d") == 1
    np.testing.assert_array_equal(constants(after)[0], W)
    assert_same_numbers(before, after, random(*X))


def test_a_shared_weight():
    # one weight, two convs, two batch norms: two scaled copies, the original as it was
    w = const(random(4, 4, 3, 3))
    original = w.data.numpy().copy()

    def make(x):
        first = norm(nn.conv2d(x, w, padding=(1, 1)), parameters(4))
        return norm(nn.conv2d(first, w, padding=(1, 1)), parameters(4, seed=3))

    check(module(make, X), ["conv2d", "add", "conv2d", "add"])
    np.testing.assert_array_equal(w.data.numpy(), original)


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_run_time_parameters(which):
    # a parameter that is an input: nothing baked in, a reason, the right numbers
    def make(x, p):
        values = [relay.const(v) for v in parameters(6)]
        values[which] = p
        return norm(conv(x), values)

    report = Report()
    before = module(make, X, (6,))
    after = fold(report)(before)
    assert "run-time value" in report.decisions[0].reason
    np.testing.assert_array_equal(constants(after)[0], W)
    assert_same_numbers(before, after, random(*X), np.abs(random(6)) + 0.5)


def test_run_time_weight():
    # a weight that is an input is not scaled
    def make(x, w):
        return norm(nn.conv2d(x, w, channels=6, kernel_size=(3, 3)), parameters(6))

    report = check(module(make, X, W.shape), ["conv2d", "multiply", "add"])
    assert "expected a constant weight" in report.decisions[0].reason


def test_statistics_read():
    # a batch norm whose mean is an output too: the mean is a constant, the fold happens
    def make(x):
        result = nn.batch_norm(conv(x), *(relay.const(v) for v in parameters(6)), epsilon=EPSILON)
        return relay.Tuple([result[0], result[1]])

    check(module(make, X), ["conv2d", "add"])


def test_fp16():
    # fp16: folded in float64, rounded once
    w = random(6, 4, 3, 3, dtype="float16")

    def make(x):
        values = [const(p, "float16") for p in parameters(6, dtype="float16")]
        return norm(nn.conv2d(x, const(w, "float16"), channels=6, kernel_size=(3, 3)), values)

    after = fold()(module(make, X, dtype="float16"))
    assert ops(after) == ["conv2d", "add"]
    gamma, _, _, variance = (p.astype(np.float64) for p in parameters(6, dtype="float16"))
    s = gamma / np.sqrt(variance + EPSILON)
    np.testing.assert_array_equal(constants(after)[0], (w * s.reshape(-1, 1, 1, 1)).astype(np.float16))


def test_fp16_out_of_range_is_kept():
    # fp16: a scale that would push a weight to infinity stays a multiply
    def make(x):
        y = nn.conv2d(x, const(W * 100, "float16"), channels=6, kernel_size=(3, 3))
        return y * const(60000.0, "float16")

    assert [d.choice for d in check_untouched(module(make, X, dtype="float16")).decisions] == ["kept"]


def test_negative_variance_is_left():
    # variance + ε ≤ 0 has no square root: left alone, with a reason
    gamma, beta, mean, variance = parameters(6)
    report = Report()
    fold(report)(module(lambda x: norm(conv(x), [gamma, beta, mean, -variance]), X))
    assert "expected finite parameters" in report.decisions[0].reason


def test_nothing_to_fold():
    check_untouched(module(lambda x: nn.relu(conv(x)), X))
