"""Scales, shifts and adds: which constants count, what composes, where it goes."""

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

X = (1, 4, 6, 6)
W = random(6, 4, 3, 3)


def conv(b, x, w=W, **attrs):
    return b(nn.conv2d(x, const(w), **attrs))


def per_channel(vector):
    return const(np.asarray(vector).reshape(1, -1, 1, 1))


# Backward: after the conv.


@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (6, 1, 1), (1, 1, 1, 1), (1,), ()])
@pytest.mark.parametrize("left", [False, True])
def test_scale_shapes(shape, left):
    # conv2d(x, w) · s, s·conv2d(x, w)  =>  conv2d(x, w·s) for s per channel or scalar
    s = random(6)[: int(np.prod(shape))].reshape(shape) if shape else random(1).reshape(())
    factor = np.broadcast_to(s.ravel(), (6,)).reshape(6, 1, 1, 1)

    def before(b, x):
        y = conv(b, x)
        return b(op.multiply(const(s), y) if left else op.multiply(y, const(s)))

    fold_and_check(module(before, X), module(lambda b, x: conv(b, x, W * factor), X), random(*X))


@pytest.mark.parametrize("shape", [(1, 1, 1, 4), (1, 6, 4, 4), (4,)])
@pytest.mark.parametrize("make", [op.multiply, op.add])
def test_other_shapes_stay(shape, make):
    # conv2d · (1, 1, 1, W), conv2d + (1, C, H, W): neither a scale nor a bias
    assert_untouched(module(lambda b, x: b(make(conv(b, x), const(random(*shape)))), X))


def test_expanding_constant_stays():
    # [1, 1, H, W] · (1, 6, 1, 1) makes six channels of one: no scale of the conv
    w = random(1, 4, 3, 3)
    assert_untouched(module(lambda b, x: b(op.multiply(conv(b, x, w), per_channel(random(6)))), X))


def test_chain_of_all_four():
    # ((c − (conv · a) / d) · e + f  =>  one conv, one bias
    a, c, d, e, f = (random(6, 1, 1, seed=i) + 2 for i in range(5))

    def before(b, x):
        y = b(op.divide(b(op.multiply(conv(b, x), const(a))), const(d)))
        y = b(op.subtract(const(c), y))
        return b(op.add(b(op.multiply(y, const(e))), const(f)))

    s = (-a / d * e).reshape(-1, 1, 1, 1)

    def after(b, x):
        return b(op.add(conv(b, x, W * s), per_channel((c * e + f).ravel())))

    report = fold_and_check(module(before, X), module(after, X), random(*X))
    assert [decision.choice for decision in report.decisions] == ["folded"] * 5


@pytest.mark.parametrize("left", [False, True])
def test_two_adds_are_one(left):
    # x + a + b, b + (a + x)  =>  x + (a + b), without any conv
    a, c = random(4, 1, 1, seed=1), random(1, 4, 1, 1, seed=2)

    def before(b, x):
        if left:
            return b(op.add(const(c), b(op.add(const(a), x))))
        return b(op.add(b(op.add(x, const(a))), const(c)))

    after = module(lambda b, x: b(op.add(x, per_channel((a + c[0]).ravel()))), X)
    fold_and_check(module(before, X), after, random(*X))


def test_two_multiplies_are_one():
    # x · a · b  =>  x · (a·b)
    a, c = random(4, 1, 1, seed=1), random(4, 1, 1, seed=2)
    before = module(lambda b, x: b(op.multiply(b(op.multiply(x, const(a))), const(c))), X)
    after = module(lambda b, x: b(op.multiply(x, per_channel((a * c).ravel()))), X)
    fold_and_check(before, after, random(*X))


def test_shared_add_stays_shared():
    # y = x + a; y + b and relu(y): y is read twice, so both adds stay
    def make(b, x):
        y = b(op.add(x, const(random(4, 1, 1))))
        return [b(op.add(y, const(random(4, 1, 1, seed=3)))), b(nn.relu(y))]

    after = fold()(module(make, X))
    assert sorted(ops(after)) == ["add", "add", "relu"]


def test_divisor_that_is_run_time_stays():
    # c / conv is no affine map
    assert_untouched(module(lambda b, x: b(op.divide(const(random(6, 1, 1)), conv(b, x))), X))


# Crossing ops.


def test_positive_scale_crosses_relu():
    # relu(conv2d(x, w)) · s with s ≥ 0  =>  relu(conv2d(x, w·s))
    s = np.abs(random(6)) * (np.arange(6) != 2)
    before = module(lambda b, x: b(op.multiply(b(nn.relu(conv(b, x))), per_channel(s))), X)
    after = module(lambda b, x: b(nn.relu(conv(b, x, W * s.reshape(-1, 1, 1, 1)))), X)
    fold_and_check(before, after, random(*X))


def test_negative_scale_does_not_cross_relu():
    # relu(conv2d(x, w)) · s with some s < 0 stays
    report = assert_untouched(
        module(lambda b, x: b(op.multiply(b(nn.relu(conv(b, x))), per_channel(random(6)))), X)
    )
    assert "to cross relu" in report.decisions[0].reason


def test_scale_crosses_and_shift_stays():
    # batch_norm(relu(conv2d)) with gamma > 0  =>  relu(conv2d(x, w·s)) + t
    gamma, beta, mean, variance = parameters(6)
    values = [const(v) for v in (np.abs(gamma), beta, mean, variance)]
    before = module(lambda b, x: b.batch_norm(b(nn.relu(conv(b, x))), values), X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "relu", "add"]
    assert_same_numbers(before, after, random(*X))


def test_what_follows_a_scale_that_sank_reads_on():
    # (relu(conv2d(x, w)) · s) + t with s ≥ 0  =>  relu(conv2d(x, w·s)) + t
    s, t = np.abs(random(6)), random(6, seed=1)

    def make(b, x):
        y = b(op.multiply(b(nn.relu(conv(b, x))), per_channel(s)))
        return b(op.add(y, per_channel(t)))

    def after(b, x):
        y = b(nn.relu(conv(b, x, W * s.reshape(-1, 1, 1, 1))))
        return b(op.add(y, per_channel(t)))

    fold_and_check(module(make, X), module(after, X), random(*X))


def test_bn_after_relu_with_negative_gamma():
    # batch_norm(relu(conv2d)) with some gamma < 0  =>  relu(conv2d), one multiply, one add
    values = [const(v) for v in parameters(6)]
    before = module(lambda b, x: b.batch_norm(b(nn.relu(conv(b, x))), values), X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "relu", "multiply", "add"]
    assert_same_numbers(before, after, random(*X))


@pytest.mark.parametrize(
    ("pool", "gamma", "folds"),
    [
        (lambda x: nn.max_pool2d(x, (2, 2), (2, 2), (1, 1)), 1.0, True),
        (lambda x: nn.max_pool2d(x, (2, 2)), -1.0, False),
        (lambda x: nn.avg_pool2d(x, (2, 2), padding=(1, 1)), -1.0, True),
        (lambda x: nn.avg_pool2d(x, (2, 2), count_include_pad=True), -1.0, True),
        (lambda x: nn.adaptive_avg_pool2d(x, (1, 1)), -1.0, True),
        (lambda x: op.mean(x, [2, 3], keepdims=True), -1.0, True),
    ],
    ids=["max", "max, negative", "avg", "avg, counting nothing", "adaptive", "mean"],
)
def test_bn_after_pool(pool, gamma, folds):
    # batch_norm(pool(conv2d))  =>  pool(conv2d + bias) where the pool lets the map through
    values = [const(np.full(6, gamma, np.float32)), *(const(v) for v in parameters(6)[1:])]
    before = module(lambda b, x: b.batch_norm(b(pool(conv(b, x))), values), X)
    after = fold()(before)
    assert ops(after)[:2] == (["conv2d", "add"] if folds else ["conv2d", "max_pool2d"])
    assert len(ops(after)) == (3 if folds else 4)
    assert_same_numbers(before, after, random(*X))


def test_shift_does_not_cross_counted_padding():
    # avg_pool(conv2d, padding counted) + t  stays: the padding would be shifted
    def make(b, x):
        pool = nn.avg_pool2d(conv(b, x), (2, 2), padding=(1, 1), count_include_pad=True)
        return b(op.add(b(pool), per_channel(random(6))))

    report = assert_untouched(module(make, X))
    assert "counts its padding" in report.decisions[0].reason


BLIND = [
    {"pool_size": (2, 2), "padding": (2, 2)},
    {"pool_size": (1, 1), "padding": (1, 1)},
    {"pool_size": (2, 2), "padding": (1, 1), "dilation": (2, 2)},
]


@pytest.mark.parametrize("attrs", BLIND, ids=str)
def test_shift_does_not_cross_a_pool_with_windows_that_see_no_pixel(attrs):
    # avg_pool(conv2d) + t, and conv2d(avg_pool(x + t)), stay: such windows would be shifted, or not
    attrs = {**attrs, "count_include_pad": False}

    def after(b, x):
        return b(op.add(b(nn.avg_pool2d(conv(b, x), **attrs)), per_channel(random(6))))

    def before(b, x):
        return conv(b, b(nn.avg_pool2d(b(op.add(x, per_channel(random(4)))), **attrs)))

    for make in (after, before):
        assert "add" in ops(fold()(module(make, X)))
        assert_same_numbers(module(make, X), fold()(module(make, X)), random(*X))


@pytest.mark.parametrize(
    ("attrs", "folds"),
    [
        ({"pool_size": (2, 2), "padding": (2, 2)}, False),
        ({"pool_size": (1, 1), "strides": (2, 2), "ceil_mode": True}, False),
        ({"pool_size": (3, 3), "strides": (2, 2), "ceil_mode": True}, True),
        ({"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1), "ceil_mode": True}, True),
    ],
)
def test_a_scale_does_not_cross_a_max_pool_with_windows_that_see_no_pixel(attrs, folds):
    # they are the least float32
    before = module(
        lambda b, x: b(op.multiply(b(nn.max_pool2d(conv(b, x), **attrs)), per_channel(np.full(6, 0.5)))), X
    )
    assert ("multiply" not in ops(fold()(before))) == folds


PIXEL_POOLS = {
    "max": (lambda x: nn.max_pool2d(x, (3, 3), (1, 1), (1, 1)), (4, 6, 6)),
    "avg": (lambda x: nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1)), (4, 6, 6)),
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

    def make(b, x):
        pooled = b(pool(b(op.multiply(x, const(s)))))
        return conv(b, b(op.permute_dims(pooled, order)), w)

    before = module(make, X)
    after = fold()(before)
    assert ("multiply" in ops(after)) == (axis != 1)
    assert_same_numbers(before, after, random(*X))


# Residual adds and concats.


def test_scale_goes_into_both_branches():
    # (conv₁ + conv₂) · s + t  =>  conv₁·s + t, conv₂·s, added
    s, t = random(6), random(6, seed=5)
    v = random(6, 4, 3, 3, seed=6)

    def before(b, x):
        total = b(op.add(conv(b, x), conv(b, x, v)))
        return b(op.add(b(op.multiply(total, per_channel(s))), per_channel(t)))

    def after(b, x):
        s4 = s.reshape(-1, 1, 1, 1)
        first = b(op.add(conv(b, x, W * s4), per_channel(t)))
        return b(op.add(first, conv(b, x, v * s4)))

    fold_and_check(module(before, X), module(after, X), random(*X))


def test_nothing_folds_on_one_side():
    # (conv2d(x) + x) · s stays: x cannot be scaled
    w = random(4, 4, 3, 3)

    def make(b, x):
        return b(op.multiply(b(op.add(conv(b, x, w, padding=1), x)), per_channel(random(4))))

    report = assert_untouched(module(make, X))
    assert "only one branch" in report.decisions[0].reason


@pytest.mark.parametrize("first", ["conv", "input"])
def test_a_shift_stays_behind_an_add_that_broadcasts(first):
    # (conv2d(x) of one channel + y) + bias stays: neither operand has all channels and takes a shift
    def make(b, x, y):
        one = conv(b, x, random(1, 4, 3, 3))
        total = b(op.add(one, y) if first == "conv" else op.add(y, one))
        return b(op.add(total, per_channel(random(6))))

    assert_untouched(module(make, X, (1, 6, X[2] - 2, X[3] - 2)))


def test_residual_bn():
    # relu(batch_norm(conv2d(x)) + x)  =>  conv2d, bias, residual add, relu
    w = random(4, 4, 3, 3)

    def make(b, x):
        y = b.batch_norm(conv(b, x, w, padding=1), [const(v) for v in parameters(4)])
        return b(nn.relu(b(op.add(y, x))))

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "add", "add", "relu"]
    assert_same_numbers(before, after, random(*X))


def test_shift_crosses_a_residual_add():
    # (conv2d(x) + b + x) + c  =>  (conv2d(x) + (b + c)) + x
    w, bias, c = random(4, 4, 3, 3), random(4, seed=1), random(4, seed=2)

    def before(b, x):
        y = b(op.add(conv(b, x, w, padding=1), per_channel(bias)))
        return b(op.add(b(op.add(y, x)), per_channel(c)))

    def after(b, x):
        return b(op.add(b(op.add(conv(b, x, w, padding=1), per_channel(bias + c))), x))

    fold_and_check(module(before, X), module(after, X), random(*X))


def test_skip_made_from_the_conv():
    # exp(y) + y with y = conv2d + b: the conv is computed once
    def make(b, x):
        y = b(op.add(conv(b, x), per_channel(random(6))))
        return b(op.add(b(op.exp(y)), y))

    assert ops(fold()(module(make, X))) == ["conv2d", "add", "exp", "add"]


def test_bn_after_concat():
    # batch_norm(concat(conv₁, conv₂))  =>  concat(conv₁ + bias, conv₂ + bias)
    def make(b, x):
        joined = b(op.concat([conv(b, x), conv(b, x, random(2, 4, 3, 3))], axis=1))
        return b.batch_norm(joined, [const(v) for v in parameters(8)])

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "add", "conv2d", "add", "concat"]
    assert_same_numbers(before, after, random(*X))


def test_bn_after_concat_with_an_input():
    # batch_norm(concat(conv, x)): x cannot be scaled, so it becomes one multiply and one add
    def make(b, x):
        joined = b(op.concat([conv(b, x, padding=1), x], axis=1))
        return b.batch_norm(joined, [const(v) for v in parameters(10)])

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "concat", "multiply", "add"]
    assert_same_numbers(before, after, random(*X))


# Forward: before the conv.


FORWARD = {
    "padded": lambda x: nn.conv2d(x, const(W), padding=1),
    "grouped": lambda x: nn.conv2d(x, const(random(6, 2, 3, 3)), groups=2, padding=1),
    "depthwise": lambda x: nn.conv2d(x, const(random(4, 1, 3, 3)), groups=4, padding=1),
    "depthwise, multiplier 2": lambda x: nn.conv2d(x, const(random(8, 1, 3, 3)), groups=4, padding=1),
    "transpose": lambda x: nn.conv2d_transpose(x, const(random(4, 6, 2, 2))),
    "grouped transpose": lambda x: nn.conv2d_transpose(x, const(random(4, 3, 2, 2)), groups=2),
    "HWIO": lambda x: nn.conv2d(x, const(random(3, 3, 4, 6)), kernel_layout="HWIO", padding=1),
}


@pytest.mark.parametrize("name", FORWARD)
def test_scale_before_conv(name):
    # conv2d(x · s, w), padded or not  =>  conv2d(x, w·s) over the input channels of each group
    before = module(lambda b, x: b(FORWARD[name](b(op.multiply(x, per_channel(random(4)))))), X)
    report = Report()
    after = fold(report)(before)
    assert len(ops(after)) == 1
    assert "forward" in report.decisions[-1].reason
    assert_same_numbers(before, after, random(*X))


def test_bn_before_unpadded_conv():
    # conv2d(batch_norm(x), w) without padding  =>  conv2d(x, w·s) + Σ w·t
    before = module(lambda b, x: conv(b, b.batch_norm(x, [const(v) for v in parameters(4)])), X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "add"]
    assert_same_numbers(before, after, random(*X))


def test_bn_on_both_sides():
    # batch_norm(conv2d(batch_norm(x), w) + b)  =>  one conv, one bias
    def make(b, x):
        y = conv(b, b.batch_norm(x, [const(v) for v in parameters(4)]))
        y = b(op.add(y, per_channel(random(6))))
        return b.batch_norm(y, [const(v) for v in parameters(6)])

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "add"]
    assert_same_numbers(before, after, random(*X))


def test_shift_before_dense():
    # (x · s + t) @ w  =>  x @ (w·s) + t @ w
    def make(b, x):
        y = b(op.add(b(op.multiply(x, const(random(5)))), const(random(5, seed=2))))
        return b(op.matmul(y, const(random(5, 6))))

    before = module(make, (3, 5))
    after = fold()(before)
    assert ops(after) == ["matmul", "add"]
    assert_same_numbers(before, after, random(3, 5))


def test_shift_before_padded_conv_stays():
    # conv2d(x + t, w, padding=1) stays: the padding is not shifted
    before = module(lambda b, x: conv(b, b(op.add(x, per_channel(random(4)))), padding=1), X)
    report = assert_untouched(before)
    assert "zeros are not shifted" in report.decisions[0].reason


def test_zero_shift_before_padded_conv():
    # conv2d(x · s + 0, w, padding=1)  =>  conv2d(x, w·s)
    def make(b, x):
        y = b(op.add(b(op.multiply(x, per_channel(random(4)))), per_channel(np.zeros(4, np.float32))))
        return conv(b, y, padding=1)

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d"]
    assert_same_numbers(before, after, random(*X))


def test_shift_before_transpose_stays():
    # conv2d_transpose(x + t): border pixels sum fewer taps
    assert_untouched(
        module(
            lambda b, x: b(
                nn.conv2d_transpose(b(op.add(x, per_channel(random(4)))), const(random(4, 6, 2, 2)))
            ),
            X,
        )
    )


def test_scale_rises_through_relu_and_pool():
    # conv2d(max_pool(relu(x · s))) with s > 0  =>  conv2d(max_pool(relu(x)), w·s)
    s = np.abs(random(4)) + 0.1

    def before(b, x):
        return conv(b, b(nn.max_pool2d(b(nn.relu(b(op.multiply(x, per_channel(s))))), (2, 2))))

    def after(b, x):
        return conv(b, b(nn.max_pool2d(b(nn.relu(x)), (2, 2))), W * s.reshape(1, -1, 1, 1))

    fold_and_check(module(before, X), module(after, X), random(*X))


def test_negative_scale_does_not_rise_through_relu():
    # conv2d(relu(x · s)) with some s < 0 stays
    assert_untouched(module(lambda b, x: conv(b, b(nn.relu(b(op.multiply(x, per_channel(random(4))))))), X))


def test_bn_relu_conv_stays():
    # conv2d(relu(batch_norm(x)))  =>  one multiply, one add, relu, conv2d
    before = module(lambda b, x: conv(b, b(nn.relu(b.batch_norm(x, [const(v) for v in parameters(4)])))), X)
    after = fold()(before)
    assert ops(after) == ["multiply", "add", "relu", "conv2d"]
    np.testing.assert_array_equal(constants(after)[2], W)
    assert_same_numbers(before, after, random(*X))


def test_scale_read_twice_does_not_rise():
    # y = x · s; conv2d(y) + sum of y: y is needed as it is
    def make(b, x):
        y = b(op.multiply(x, per_channel(random(4))))
        return [conv(b, y), b(nn.relu(y))]

    after = fold()(module(make, X))
    assert sorted(ops(after)) == ["conv2d", "multiply", "relu"]


def test_hard_swish_stays_whole():
    # conv2d(x · clip(x + 3, 0, 6) / 6): the division belongs to the activation
    def make(b, x):
        gate = b(op.clip(b(op.add(x, const(3.0))), 0, 6))
        return conv(b, b(op.divide(b(op.multiply(x, gate)), const(6.0))))

    assert_untouched(module(make, X))


def test_scale_by_channels_of_a_vector_head():
    # batch_norm(reshape(mean(conv2d)))  =>  conv2d + bias, mean, reshape
    def make(b, x):
        pooled = b(op.mean(conv(b, x), [2, 3], keepdims=True))
        return b.batch_norm(b(op.reshape(pooled, (1, 6))), [const(v) for v in parameters(6)])

    before = module(make, X)
    after = fold()(before)
    assert ops(after) == ["conv2d", "add", "mean", "reshape"]
    assert_same_numbers(before, after, random(*X))
