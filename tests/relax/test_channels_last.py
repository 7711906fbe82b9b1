"""Networks in NHWC are taken whole: one region, plain TVM's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from frontend_modules import (
    assert_all_offloaded,
    assert_near,
    compile_with_convoy,
    compile_with_tvm,
    const,
    module,
    random,
)
from tvm import relax

op, nn = relax.op, relax.op.nn
Emit = Callable[[Any], Any]

KERNELS = {"HWIO": (1, 2, 3, 0), "OHWI": (0, 1, 2, 3), "OIHW": (0, 3, 1, 2)}
"""Axes of an OHWI weight in each layout."""


def conv(emit: Emit, x: Any, channels: int, size: int = 3, kernel: str = "HWIO", **attrs: Any) -> Any:
    inputs = int(x.ty.shape.values[3]) // attrs.get("groups", 1)
    weight = random(channels, size, size, inputs).transpose(KERNELS[kernel])
    return emit(nn.conv2d(x, const(weight), data_layout="NHWC", kernel_layout=kernel, **attrs))


def batch_norm(emit: Emit, x: Any) -> Any:
    channels = int(x.ty.shape.values[3])
    gamma, beta, mean, variance = (random(channels, seed=i) for i in range(4))
    parameters = (const(a) for a in (gamma, beta, mean, variance + 1.5))
    return emit(emit(nn.batch_norm(x, *parameters, axis=3, training=False))[0])


def check(make: Callable[..., Any], *shapes: tuple[int, ...]) -> None:
    built = module(make, *shapes)
    inputs = [random(*shape, seed=9) for shape in shapes]
    found, report = compile_with_convoy(built)
    assert_all_offloaded(report)
    assert_near(found(*inputs), compile_with_tvm(built)(*inputs))


@pytest.mark.slow
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_conv_bias_relu(kernel: str) -> None:
    def make(emit: Emit, x: Any) -> Any:
        y = conv(emit, x, 24, kernel=kernel, padding=1, strides=2)
        return emit(nn.relu(emit(op.add(y, const(random(24))))))

    check(make, (1, 15, 17, 5))


@pytest.mark.slow
def test_bottleneck_with_batch_norm_and_residual() -> None:
    # what a ResNet block is: 1x1, 3x3, 1x1, each with a BN, and the input added before the relu
    def make(emit: Emit, x: Any) -> Any:
        y = emit(nn.relu(batch_norm(emit, conv(emit, x, 16, 1))))
        y = emit(nn.relu(batch_norm(emit, conv(emit, y, 16, 3, padding=1))))
        y = batch_norm(emit, conv(emit, y, 32, 1))
        return emit(nn.relu(emit(op.add(y, x))))

    check(make, (1, 14, 14, 32))


@pytest.mark.slow
def test_depthwise_separable() -> None:
    # groups = channels, then 1x1
    def make(emit: Emit, x: Any) -> Any:
        y = conv(emit, x, 16, 3, padding=1, groups=16)
        return emit(nn.relu6(conv(emit, y, 40, 1)))

    check(make, (1, 13, 13, 16))


@pytest.mark.slow
def test_classifier() -> None:
    # conv → pools in NHWC → global mean over H and W → dense → softmax
    def make(emit: Emit, x: Any) -> Any:
        y = emit(nn.relu(conv(emit, x, 16, 3, padding=1)))
        y = emit(nn.max_pool2d(y, (3, 3), strides=2, padding=1, layout="NHWC"))
        y = emit(nn.avg_pool2d(y, (2, 2), strides=2, layout="NHWC"))
        y = emit(op.mean(conv(emit, y, 32, 1), axis=[1, 2]))
        return emit(nn.softmax(emit(op.matmul(y, const(random(32, 10))))))

    check(make, (1, 32, 32, 3))


@pytest.mark.slow
def test_concat_of_branches_along_channels() -> None:
    def make(emit: Emit, x: Any) -> Any:
        branches = [conv(emit, x, 8, size, padding=size // 2) for size in (1, 3, 5)]
        pooled = emit(nn.max_pool2d(x, (3, 3), strides=1, padding=1, layout="NHWC"))
        joined = emit(op.concat([*branches, pooled], axis=3))
        return emit(nn.relu(conv(emit, joined, 12, 1)))

    check(make, (1, 9, 9, 6))


@pytest.mark.slow
def test_squeeze_and_excite() -> None:
    # the gate [N, 1, 1, C] multiplies the data it was made of
    def make(emit: Emit, x: Any) -> Any:
        y = conv(emit, x, 16, 3, padding=1)
        gate = emit(op.mean(y, axis=[1, 2], keepdims=True))
        gate = emit(nn.silu(conv(emit, gate, 4, 1)))
        gate = emit(op.sigmoid(conv(emit, gate, 16, 1)))
        return conv(emit, emit(op.multiply(y, gate)), 8, 1)

    check(make, (1, 10, 10, 8))


@pytest.mark.slow
def test_batch_of_images() -> None:
    def make(emit: Emit, x: Any) -> Any:
        return emit(nn.relu(batch_norm(emit, conv(emit, x, 16, 3, padding=1))))

    check(make, (3, 12, 12, 4))
