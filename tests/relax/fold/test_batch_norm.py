"""Batch norm into the anchor before it."""

from __future__ import annotations

import numpy as np
import pytest
from fold_modules import (
    assert_same_numbers,
    assert_untouched,
    const,
    constants,
    fold_and_check,
    module,
    ops,
    parameters,
    random,
)
from tvm import relax

from convoy.relax.fold import fold
from convoy.report.decision import Report

op = relax.op
nn = relax.op.nn

EPSILON = 1e-5
ROLES = ("gamma", "beta", "mean", "variance")


def norm(channels, **kwargs):
    return [const(p) for p in parameters(channels, **kwargs)]


def scale_shift(channels, epsilon=EPSILON):
    """The affine map of ``parameters(channels)``, in float64."""
    gamma, beta, mean, variance = (p.astype(np.float64) for p in parameters(channels))
    scale = gamma / np.sqrt(variance + epsilon)
    return scale, beta - mean * scale


def per_channel(vector):
    return const(vector.reshape(1, -1, 1, 1))


@pytest.mark.parametrize("batch", [1, "n"])
def test_conv_bn(batch):
    # batch_norm(conv2d(x, w))  =>  conv2d(x, w·s) + t, also for a dynamic batch
    w = random(6, 4, 3, 3)
    s, t = scale_shift(6)

    def before(b, x):
        return b.batch_norm(b(nn.conv2d(x, const(w), padding=1)), norm(6))

    def after(b, x):
        conv = b(nn.conv2d(x, const(w * s.reshape(-1, 1, 1, 1)), padding=1))
        return b(op.add(conv, per_channel(t)))

    shape = (batch, 4, 5, 5)
    report = fold_and_check(
        module(before, shape), module(after, shape), random(2 if batch == "n" else 1, 4, 5, 5)
    )
    assert [d.choice for d in report.decisions] == ["folded"]


def test_conv_bias_bn_add_is_one_bias():
    # batch_norm(conv2d(x, w) + b) + c  =>  conv2d(x, w·s) + ((b − μ)·s + β + c)
    w, bias, c = random(6, 4, 3, 3), random(1, 6, 1, 1, seed=1), random(6, 1, 1, seed=2)
    s, t = scale_shift(6)

    def before(b, x):
        y = b(op.add(b(nn.conv2d(x, const(w))), const(bias)))
        return b(nn.relu(b(op.add(b.batch_norm(y, norm(6)), const(c)))))

    def after(b, x):
        conv = b(nn.conv2d(x, const(w * s.reshape(-1, 1, 1, 1))))
        return b(nn.relu(b(op.add(conv, per_channel(bias.ravel() * s + t + c.ravel())))))

    fold_and_check(module(before, (1, 4, 5, 5)), module(after, (1, 4, 5, 5)), random(1, 4, 5, 5))


def test_decomposed_bn():
    # (conv2d(x, w) − μ) / sqrt(σ² + ε) · γ + β on computed constants  =>  conv2d + bias
    w = random(6, 4, 3, 3)
    s, t = scale_shift(6)

    def before(b, x):
        gamma, beta, mean, variance = (b(op.expand_dims(p, [0, 2, 3])) for p in norm(6))
        y = b(op.subtract(b(nn.conv2d(x, const(w))), mean))
        y = b(op.divide(y, b(op.sqrt(b(op.add(variance, const(EPSILON)))))))
        return b(op.add(b(op.multiply(y, gamma)), beta))

    def after(b, x):
        return b(op.add(b(nn.conv2d(x, const(w * s.reshape(-1, 1, 1, 1)))), per_channel(t)))

    fold_and_check(module(before, (1, 4, 5, 5)), module(after, (1, 4, 5, 5)), random(1, 4, 5, 5))


def test_bn_decomposed_by_tvm():
    # what DecomposeOpsForInference makes of a batch norm, a tuple taken apart  =>  conv2d + bias
    before = module(
        lambda b, x: b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 3, 3)))), norm(6)), (1, 4, 5, 5)
    )
    after = fold()(relax.transform.DecomposeOpsForInference()(before))
    assert ops(after) == ["conv2d", "add"]
    assert_same_numbers(before, after, random(1, 4, 5, 5))


ANCHORS = {
    "depthwise": lambda b, x: nn.conv2d(x, const(random(4, 1, 3, 3)), groups=4, padding=1),
    "depthwise, multiplier 2": lambda b, x: nn.conv2d(x, const(random(8, 1, 3, 3)), groups=4),
    "grouped": lambda b, x: nn.conv2d(x, const(random(6, 2, 3, 3)), groups=2),
    "HWIO": lambda b, x: nn.conv2d(x, const(random(3, 3, 4, 6)), kernel_layout="HWIO"),
    "OHWI": lambda b, x: nn.conv2d(x, const(random(6, 3, 3, 4)), kernel_layout="OHWI"),
    "IOHW": lambda b, x: nn.conv2d(x, const(random(4, 6, 3, 3)), kernel_layout="IOHW"),
    "conv2d_transpose": lambda b, x: nn.conv2d_transpose(x, const(random(4, 6, 3, 3)), strides=2),
    "conv2d_transpose, grouped": lambda b, x: nn.conv2d_transpose(x, const(random(4, 3, 3, 3)), groups=2),
}


@pytest.mark.parametrize("name", ANCHORS)
def test_every_conv2d(name):
    # batch_norm(conv)  =>  conv + bias, for each weight layout and grouping
    channels = int(module(lambda b, x: b(ANCHORS[name](b, x)), (1, 4, 5, 5))["main"].ret_ty.shape[1])
    before = module(lambda b, x: b.batch_norm(b(ANCHORS[name](b, x)), norm(channels)), (1, 4, 5, 5))
    after = fold()(before)
    conv = "conv2d_transpose" if "transpose" in name else "conv2d"
    assert ops(after) == [conv, "add"]
    assert_same_numbers(before, after, random(1, 4, 5, 5))


def test_conv1d():
    # batch_norm(conv1d)  =>  conv1d + bias
    before = module(lambda b, x: b.batch_norm(b(nn.conv1d(x, const(random(6, 4, 3)))), norm(6)), (1, 4, 9))
    after = fold()(before)
    assert ops(after) == ["conv1d", "add"]
    assert_same_numbers(before, after, random(1, 4, 9))


def test_conv1d_transpose():
    # batch_norm(conv1d_transpose)  =>  conv1d_transpose + bias
    before = module(
        lambda b, x: b.batch_norm(b(nn.conv1d_transpose(x, const(random(4, 6, 3)))), norm(6)), (1, 4, 9)
    )
    after = fold()(before)
    assert ops(after) == ["conv1d_transpose", "add"]
    assert_same_numbers(before, after, random(1, 4, 9))


def test_conv3d():
    # batch_norm(conv3d)  =>  conv3d + bias
    before = module(
        lambda b, x: b.batch_norm(b(nn.conv3d(x, const(random(6, 4, 2, 2, 2)))), norm(6)), (1, 4, 4, 4, 4)
    )
    after = fold()(before)
    assert ops(after) == ["conv3d", "add"]
    assert_same_numbers(before, after, random(1, 4, 4, 4, 4))


def test_conv3d_transpose():
    # batch_norm(conv3d_transpose)  =>  conv3d_transpose + bias
    w = random(4, 6, 2, 2, 2)
    before = module(
        lambda b, x: b.batch_norm(b(nn.conv3d_transpose(x, const(w), strides=2)), norm(6)), (1, 4, 3, 3, 3)
    )
    after = fold()(before)
    assert ops(after) == ["conv3d_transpose", "add"]
    assert_same_numbers(before, after, random(1, 4, 3, 3, 3))


@pytest.mark.parametrize("transposed", [False, True])
def test_dense(transposed):
    # batch_norm(x @ w + b)  =>  x @ (w·s) + b', the weight as [K, N] or as permute_dims of [N, K]
    w, bias = random(5, 6), random(6)
    s, t = scale_shift(6)

    def before(b, x):
        weight = b(op.permute_dims(const(w.T.copy()))) if transposed else const(w)
        return b.batch_norm(b(op.add(b(op.matmul(x, weight)), const(bias))), norm(6))

    def after(b, x):
        return b(op.add(b(op.matmul(x, const(w * s))), const(bias * s + t)))

    fold_and_check(module(before, (3, 5)), module(after, (3, 5)), random(3, 5))


@pytest.mark.parametrize(("scale", "center"), [(False, True), (True, False), (False, False)])
def test_scale_and_center_off(scale, center):
    # batch_norm(scale=False) ignores gamma, batch_norm(center=False) ignores beta
    gamma, beta, mean, variance = (p.astype(np.float64) for p in parameters(6))
    w, x = random(6, 4, 1, 1), random(1, 4, 3, 3)

    def make(b, x):
        return b.batch_norm(b(nn.conv2d(x, const(w))), norm(6), scale=scale, center=center)

    before = module(make, x.shape)
    after = fold()(before)
    assert ops(after) == ["conv2d", "add"]
    s = (gamma if scale else 1.0) / np.sqrt(variance + EPSILON)
    t = (beta if center else 0.0) - mean * s
    np.testing.assert_allclose(constants(after)[0], w * s.reshape(-1, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(constants(after)[1].ravel(), t, rtol=1e-5)


def test_zero_gamma_and_tiny_variance():
    # gamma = 0 and variance 1e-12 give finite, right numbers: the math is float64
    gamma, beta, mean, _ = parameters(6)
    gamma[2] = 0
    values = [gamma, beta, mean * 1e-3, np.full(6, 1e-12, np.float32)]
    w = random(6, 4, 3, 3)

    def make(b, x):
        return b.batch_norm(b(nn.conv2d(x, const(w))), [const(v) for v in values], epsilon=1e-9)

    after = fold()(module(make, (1, 4, 5, 5)))
    assert ops(after) == ["conv2d", "add"]
    g, be, m, v = (value.astype(np.float64) for value in values)
    s = g / np.sqrt(v + 1e-9)
    np.testing.assert_allclose(constants(after)[0], w * s.reshape(-1, 1, 1, 1), rtol=1e-6)
    np.testing.assert_allclose(constants(after)[1].ravel(), be - m * s, rtol=1e-6)


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("padding", [0, 1])
def test_zero_gamma_before_a_conv(relu, padding):
    # conv2d([relu] batch_norm(x)) with gamma = 0 stays finite: nothing is divided by a scale
    gamma, beta, mean, variance = parameters(4)
    gamma[1] = 0
    values = [const(v) for v in (gamma, beta, mean, variance)]

    def make(b, x):
        y = b.batch_norm(x, values)
        return b(nn.conv2d(b(nn.relu(y)) if relu else y, const(random(6, 4, 3, 3)), padding=padding))

    before = module(make, (1, 4, 5, 5))
    after = fold()(before)
    assert ops(after) == (["multiply", "add", "relu", "conv2d"] if relu else
                          ["multiply", "add", "conv2d"] if padding else ["conv2d", "add"])  # fmt: skip
    assert_same_numbers(before, after, random(1, 4, 5, 5))


def test_fp16():
    # fp16: the scale is computed in float64 and the weight rounded once
    w = random(6, 4, 3, 3, dtype="float16")
    values = parameters(6, dtype="float16")

    def make(b, x):
        return b.batch_norm(b(nn.conv2d(x, const(w, "float16"))), [const(v, "float16") for v in values])

    after = fold()(module(make, (1, 4, 5, 5), dtype="float16"))
    assert ops(after) == ["conv2d", "add"]
    gamma, _, _, variance = (v.astype(np.float64) for v in values)
    s = gamma / np.sqrt(variance + EPSILON)
    np.testing.assert_array_equal(constants(after)[0], (w * s.reshape(-1, 1, 1, 1)).astype(np.float16))


def test_fp16_out_of_range_is_kept():
    # fp16: a scale that would push a weight to infinity stays a multiply
    w = random(6, 4, 1, 1) * 100

    def make(b, x):
        return b(op.multiply(b(nn.conv2d(x, const(w, "float16"))), const(60000.0, "float16")))

    before = module(make, (1, 4, 3, 3), dtype="float16")
    assert [d.choice for d in assert_untouched(before).decisions] == ["kept"]


def test_two_convs_share_one_weight():
    # one weight, two convs, two batch norms  =>  two scaled copies, the original untouched
    w = random(6, 4, 1, 1)
    shared = const(w)

    def make(b, x):
        first = b.batch_norm(b(nn.conv2d(x, shared)), norm(6))
        second = b.batch_norm(b(nn.conv2d(x, shared)), norm(6, seed=8))
        return b(op.add(first, second))

    before = module(make, (1, 4, 3, 3))
    after = fold()(before)
    assert ops(after) == ["conv2d", "add", "conv2d", "add", "add"]
    weights = [c for c in constants(after) if c.shape == w.shape]
    assert np.abs(weights[0] - weights[1]).max() > 0.1
    np.testing.assert_array_equal(shared.value.numpy(), w)
    assert_same_numbers(before, after, random(1, 4, 3, 3))


def test_lone_bn_is_multiply_and_add():
    # batch_norm(x)  =>  x·s + t: two ops with constants, not four
    s, t = scale_shift(4)
    before = module(lambda b, x: b.batch_norm(x, norm(4)), (1, 4, 3, 3))
    expected = module(
        lambda b, x: b(op.add(b(op.multiply(x, per_channel(s))), per_channel(t))), (1, 4, 3, 3)
    )
    report = fold_and_check(before, expected, random(1, 4, 3, 3))
    assert report.decisions[0].choice == "merged"


def test_statistics_read_too():
    # the mean a batch norm passes through is the constant it came from
    def make(b, x):
        result = b(
            nn.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), *norm(6), axis=1, training=False)
        )
        return [b(result[0]), b(result[1])]

    before = module(make, (1, 4, 3, 3))
    after = fold()(before)
    assert ops(after) == ["conv2d", "add"]
    assert_same_numbers(before, after, random(1, 4, 3, 3))


# Twins that must not fire.


def whole_norm(b, x):
    conv = b(nn.conv2d(x, const(random(6, 4, 1, 1))))
    return b(nn.batch_norm(conv, *norm(6), axis=1, training=False))


def test_result_taken_twice():
    # bn = batch_norm(conv); relu(bn[0]) + bn[0], two bindings  =>  one conv, one bias
    def before(b, x):
        bn = whole_norm(b, x)
        return b(op.add(b(nn.relu(b(bn[0]))), b(bn[0])))

    report, mod = Report(), module(before, (1, 4, 3, 3))
    after = fold(report)(mod)
    assert ops(after) == ["conv2d", "add", "relu", "add"]
    assert [decision.choice for decision in report.decisions] == ["folded"]
    assert_same_numbers(mod, after, random(1, 4, 3, 3))


def test_statistics_taken_twice():
    # (bn[1], bn[1] + bn[0], bn[0]), each a binding of its own  =>  they are the constant and the conv
    def before(b, x):
        bn = whole_norm(b, x)
        moved = b(op.reshape(b(bn[1]), (6, 1, 1)))
        return b(relax.Tuple([b(bn[1]), b(op.add(moved, b(bn[0]))), b(bn[0])]))

    mod = module(before, (1, 4, 3, 3))
    after = fold()(mod)
    assert ops(after) == ["conv2d", "add", "add"]
    assert_same_numbers(mod, after, random(1, 4, 3, 3))


def test_result_taken_twice_and_scaled_once():
    # (bn[0] · 2, bn[0])  =>  the conv has the norm's scale only
    def before(b, x):
        bn = whole_norm(b, x)
        return b(relax.Tuple([b(op.multiply(b(bn[0]), const(2.0))), b(bn[0])]))

    report, mod = Report(), module(before, (1, 4, 3, 3))
    after = fold(report)(mod)
    assert ops(after) == ["conv2d", "add", "multiply"]
    assert "read 2 times" in report.decisions[-1].reason
    assert_same_numbers(mod, after, random(1, 4, 3, 3))


def test_whole_tuple_is_left():
    # relu(bn[0]) and bn itself as a result  =>  not folded, the reason says so
    def before(b, x):
        bn = whole_norm(b, x)
        return b(relax.Tuple([b(nn.relu(b(bn[0]))), bn]))

    assert "got the whole tuple" in assert_untouched(module(before, (1, 4, 3, 3))).decisions[0].reason


def test_training_is_left():
    # batch_norm(training=True) is left alone, with a reason
    before = module(
        lambda b, x: b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), norm(6), training=True),
        (1, 4, 3, 3),
    )
    (decision,) = assert_untouched(before).decisions
    assert decision.choice == "kept"
    assert "training=True" in decision.reason


@pytest.mark.parametrize("role", ROLES)
def test_runtime_parameter_is_left(role):
    # batch_norm with one of its four a parameter of the function: nothing baked in
    def make(b, x, p):
        values = norm(6)
        values[ROLES.index(role)] = p
        return b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), values)

    (decision,) = assert_untouched(module(make, (1, 4, 3, 3), (6,))).decisions
    assert decision.choice == "kept"
    assert decision.reason == f"expected a constant {role}, got a run-time value"


def test_runtime_weight_is_not_scaled():
    # batch_norm(conv2d(x, w)) with w a parameter  =>  conv2d, multiply, add
    before = module(lambda b, x, w: b.batch_norm(b(nn.conv2d(x, w)), norm(6)), (1, 4, 3, 3), (6, 4, 1, 1))
    report = Report()
    after = fold(report)(before)
    assert ops(after) == ["conv2d", "multiply", "add"]
    assert "expected a constant weight" in report.decisions[0].reason
    assert_same_numbers(before, after, random(1, 4, 3, 3), random(6, 4, 1, 1))


def test_conv_read_twice_is_not_scaled():
    # relu(conv) + batch_norm(conv)  =>  the conv once, its weight as it was
    w = random(6, 4, 1, 1)

    def make(b, x):
        conv = b(nn.conv2d(x, const(w)))
        return b(op.add(b(nn.relu(conv)), b.batch_norm(conv, norm(6))))

    before = module(make, (1, 4, 3, 3))
    report = Report()
    after = fold(report)(before)
    assert sorted(ops(after)) == ["add", "add", "conv2d", "multiply", "relu"]
    np.testing.assert_array_equal(constants(after)[0], w)
    assert "is read 2 times" in report.decisions[0].reason
    assert_same_numbers(before, after, random(1, 4, 3, 3))


def test_conv_that_is_an_output_is_not_scaled():
    # (batch_norm(conv), conv)  =>  the conv once, its weight as it was
    w = random(6, 4, 1, 1)

    def make(b, x):
        conv = b(nn.conv2d(x, const(w)))
        return [b.batch_norm(conv, norm(6)), conv]

    before = module(make, (1, 4, 3, 3))
    after = fold()(before)
    assert ops(after) == ["conv2d", "multiply", "add"]
    np.testing.assert_array_equal(constants(after)[0], w)
    assert_same_numbers(before, after, random(1, 4, 3, 3))


def test_two_bns_on_one_conv():
    # batch_norm₁(conv) + batch_norm₂(conv)  =>  the conv once, its weight as it was
    w = random(6, 4, 1, 1)

    def make(b, x):
        conv = b(nn.conv2d(x, const(w)))
        return b(op.add(b.batch_norm(conv, norm(6)), b.batch_norm(conv, norm(6, seed=9))))

    before = module(make, (1, 4, 3, 3))
    after = fold()(before)
    assert ops(after).count("conv2d") == 1
    np.testing.assert_array_equal(constants(after)[0], w)
    assert_same_numbers(before, after, random(1, 4, 3, 3))


def test_dead_reader_does_not_count():
    # a conv whose second reader is dead code folds all the same
    def make(b, x):
        conv = b(nn.conv2d(x, const(random(6, 4, 1, 1))))
        b(nn.relu(conv))
        return b.batch_norm(conv, norm(6))

    assert ops(fold()(module(make, (1, 4, 3, 3)))) == ["conv2d", "add"]


def test_bn_on_another_axis():
    # batch_norm(conv2d in NCHW, axis=3) does not fold
    before = module(
        lambda b, x: b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), norm(5), axis=3), (1, 4, 5, 5)
    )
    after = fold()(before)
    assert ops(after) == ["conv2d", "multiply", "add"]
    assert_same_numbers(before, after, random(1, 4, 5, 5))


def test_negative_variance_is_left():
    # variance + ε ≤ 0 has no square root: left alone, with a reason
    gamma, beta, mean, variance = parameters(6)
    values = [const(v) for v in (gamma, beta, mean, -variance)]
    before = module(
        lambda b, x: b.batch_norm(b(nn.conv2d(x, const(random(6, 4, 1, 1)))), values), (1, 4, 3, 3)
    )
    (decision,) = assert_untouched(before).decisions
    assert decision.choice == "kept"
    assert "expected finite parameters" in decision.reason
