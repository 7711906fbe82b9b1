"""Relay: constants that are expressions are folded like those that are literals."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_fold_modules import (
    assert_same_numbers,
    check,
    const,
    constants,
    largest_error,
    module,
    norm,
    ops,
    parameters,
    random,
    run,
)
from tvm import relay

import convoy
from convoy.options import Options
from convoy.relay.fold import fold, fold_scales
from convoy.relay.fold.computed import compute_constants

nn = relay.nn
X = (1, 4, 5, 5)
W = random(6, 4, 3, 3)


def half(array):
    return relay.const(array.astype(np.float16))


WEIGHTS = {
    "cast": lambda: relay.cast(half(W), "float32"),
    "cast of a difference of integers": lambda: relay.cast(
        relay.subtract(relay.const(np.full((6, 4, 3, 3), 5, np.int8)), relay.const(np.int8(3))), "float32"
    ),
    "concatenate": lambda: relay.concatenate([const(W[:2]), const(W[2:])], 0),
    "strided_slice": lambda: relay.strided_slice(const(random(12, 4, 3, 3)), [2], [8], axes=[0]),
    "split": lambda: relay.split(const(random(12, 4, 3, 3)), 2, 0)[1],
    "abs": lambda: relay.abs(const(W)),
    "reverse": lambda: relay.reverse(const(W), 2),
    "minus its mean": lambda: const(W) - relay.mean(const(W), [1, 2, 3], keepdims=True),
    "cast of its transpose": lambda: relay.cast(relay.transpose(half(W.T)), "float32"),
    "ones": lambda: relay.ones((6, 4, 3, 3), "float32"),
    "tanh of ones": lambda: relay.tanh(relay.ones((6, 4, 3, 3), "float32")),
    "full": lambda: relay.full(const(0.5), (6, 4, 3, 3), "float32"),
    "dropout": lambda: nn.dropout(const(W)),
    "batch_norm": lambda: norm(const(W), parameters(4)),
}


def conv(x, weight):
    return nn.conv2d(x, weight, channels=6, kernel_size=(3, 3), padding=(1, 1))


@pytest.mark.parametrize("name", WEIGHTS)
def test_a_weight_that_is_computed(name):
    # batch_norm(conv2d(x, f(literals)))  =>  conv2d(x, w·s) + t
    report = check(module(lambda x: norm(conv(x, WEIGHTS[name]()), parameters(6)), X), ["conv2d", "add"])
    assert [d.choice for d in report.decisions] == ["folded"]


def test_a_weight_that_is_dequantized():
    # as ONNX's DequantizeLinear comes  =>  its float32 values, and the batch norm folded
    coarse, scales = (W * 50).astype(np.int8), parameters(6)[3]
    zeros = relay.const(np.arange(6, dtype=np.int32))
    weight = relay.qnn.op.dequantize(relay.const(coarse), const(scales), zeros, axis=0)
    after = fold()(module(lambda x: norm(conv(x, weight), parameters(6)), X))
    assert ops(after) == ["conv2d", "add"]
    axis = (6, 1, 1, 1)
    plain = (coarse - np.arange(6).reshape(axis)).astype(np.float32) * scales.reshape(axis)
    want = module(lambda x: norm(conv(x, const(plain)), parameters(6)), X)
    assert_same_numbers(want, after, random(*X))


VECTORS = {
    "ones": lambda: relay.ones((6,), "float32"),
    "zeros": lambda: relay.zeros((6,), "float32"),
    "exp": lambda: relay.exp(const(random(6))),
    "take": lambda: relay.take(const(np.linspace(0.5, 2, 9)), relay.const(np.arange(6, dtype="int32"))),
    "maximum": lambda: relay.maximum(const(random(6)), const(0.25)),
    "cast": lambda: relay.cast(half(parameters(6)[3]), "float32"),
}


@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("name", VECTORS)
def test_parameters_that_are_computed(name, which):
    # batch_norm(conv2d), gamma, beta, mean or variance computed from literals  =>  one conv, one bias
    values = [relay.const(value) for value in parameters(6)]
    values[which] = VECTORS[name]()
    check(module(lambda x: norm(conv(x, const(W)), values, epsilon=0.1), X), ["conv2d", "add"])


@pytest.mark.slow
def test_a_network_of_computed_constants_is_taken_whole():
    # strict mode finds nothing left, and the build computes the same
    weight, gamma = WEIGHTS["cast"], VECTORS["ones"]
    values = parameters(6)[1:]
    before = module(lambda x: nn.relu(norm(nn.dropout(conv(x, weight())), [gamma(), *values])), X)
    with convoy.relay.using(Options(strict=True)):
        cut = convoy.relay.partition_for_convoy(before)
    assert_same_numbers(before, fold()(before), random(*X))
    want = run(before, random(*X))[0]
    assert largest_error(run(cut, random(*X))[0], want) < 1e-4


def test_a_weight_computed_from_an_input_is_left():
    # the same cast of an input  =>  a conv, one multiply, one add
    def make(x, w):
        return norm(conv(x, relay.cast(w, "float32")), parameters(6))

    before = module(make, X, W.shape)
    after = fold()(before)
    assert [op for op in ops(after) if op != "cast"] == ["conv2d", "multiply", "add"]
    assert_same_numbers(before, after, random(*X), W)


def test_a_scale_in_float64_stays_so():
    # gamma / sqrt(variance + ε), written out of literals: not computed in float32, but by the fold
    gamma, _, _, variance = parameters(6)
    scale = const(gamma) / relay.sqrt(const(variance * 1e-12) + const(1e-12))
    before = module(lambda x: conv(x, const(W)) * relay.reshape(scale, (6, 1, 1)), X)
    assert compute_constants(before["main"]).same_as(before["main"])
    after = fold()(before)
    wide = gamma / np.sqrt((variance * np.float32(1e-12)).astype(np.float64) + np.float32(1e-12))
    np.testing.assert_allclose(constants(after)[0], W * wide.reshape(-1, 1, 1, 1), rtol=1e-7)


def test_ones_that_are_not_folded_stay_ones():
    # sin(x + ones): no literal of its size
    before = module(lambda x: relay.sin(relay.ones(X, "float32") + x), X)
    tvm.ir.assert_structural_equal(fold_scales()(before), before)


def test_dropout_between_a_conv_and_its_norm():
    # batch_norm(dropout(conv2d))  =>  one conv, one bias
    check(module(lambda x: norm(nn.dropout(conv(x, const(W))), parameters(6)), X), ["conv2d", "add"])


def test_dropout_of_a_conv_read_twice():
    # batch_norm(dropout(y)) + y, y = conv2d  =>  the conv's weight as it was
    def make(x):
        y = conv(x, const(W))
        return norm(nn.dropout(y), parameters(6)) + nn.relu(y)

    report = check(module(make, X), ["conv2d", "multiply", "add", "relu", "add"])
    assert "read 2 times" in report.decisions[0].reason


def test_dropout_read_twice():
    # batch_norm(d) + relu(d), d = dropout(conv2d)  =>  the conv's weight as it was
    def make(x):
        y = nn.dropout(conv(x, const(W)))
        return norm(y, parameters(6)) + nn.relu(y)

    check(module(make, X), ["conv2d", "multiply", "add", "relu", "add"])
