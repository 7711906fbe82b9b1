"""Seed 7: the networks other BYOC backends of TVM are tested with, through Convoy.

The cases are those of TVM v0.16's tests of DNNL and of external codegen: convolutions, dense layers and
pools with what follows them, residual blocks, subgraphs of several nodes, constants inside and outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relay

import convoy.relay
from convoy.relay.partition import external_functions
from convoy.report.decision import Report
from relay.relay_modules import Array, Make, const, module, random, run, run_plain, weight

nn = relay.nn
IMAGE = (1, 8, 12, 12)


def conv(x: relay.Expr, outputs: int = 8, kernel: int = 3, groups: int = 1, **attrs: object) -> relay.Expr:
    inputs = int(relay.transform.InferTypeLocal(x).shape[1]) // groups
    padding = attrs.pop("padding", (kernel // 2, kernel // 2))
    return nn.conv2d(
        x,
        weight(outputs, inputs, kernel, kernel) * const(0.2),
        channels=outputs,
        kernel_size=(kernel, kernel),
        padding=padding,
        groups=groups,
        **attrs,
    )


def bias(x: relay.Expr, channels: int = 8) -> relay.Expr:
    return nn.bias_add(x, weight(channels))


def norm(x: relay.Expr, channels: int = 8) -> relay.Expr:
    gamma, beta, mean = (weight(channels, seed=seed) for seed in (1, 2, 3))
    variance = const(np.linspace(0.5, 1.5, channels))
    return nn.batch_norm(x, gamma, beta, mean, variance)[0]


def swish(x: relay.Expr) -> relay.Expr:
    return x * relay.sigmoid(x)


def gelu(x: relay.Expr) -> relay.Expr:
    return x * (const(0.5) + relay.erf(x * const(0.5**0.5)) * const(0.5))


def residual(x: relay.Expr) -> relay.Expr:
    """A bottleneck of ResNet version 1, with the stride on the 3x3 and a projection."""
    y = nn.relu(norm(conv(x, 4, 1), 4))
    y = nn.relu(norm(conv(y, 4, 3, strides=(2, 2)), 4))
    y = norm(conv(y, 16, 1), 16)
    return nn.relu(y + norm(conv(x, 16, 1, strides=(2, 2)), 16))


def flat(x: relay.Expr) -> relay.Expr:
    return nn.batch_flatten(x)


def dense(x: relay.Expr, inputs: int = 32, units: int = 16) -> relay.Expr:
    return nn.dense(x, weight(units, inputs) * const(0.2), units=units)


VECTOR = (3, 32)
WHOLE: dict[str, tuple[Make, tuple[int, ...]]] = {
    "conv2d": (conv, IMAGE),
    "conv2d, 1x1": (lambda x: conv(x, 16, 1), IMAGE),
    "conv2d, strides": (lambda x: conv(x, strides=(2, 2)), IMAGE),
    "conv2d, dilation": (lambda x: conv(x, dilation=(2, 2), padding=(2, 2)), IMAGE),
    "conv2d, depthwise": (lambda x: conv(x, groups=8), IMAGE),
    "conv2d, groups": (lambda x: conv(x, groups=2), IMAGE),
    "conv2d, bias, relu": (lambda x: nn.relu(bias(conv(x))), IMAGE),
    "conv2d, bias, tanh": (lambda x: relay.tanh(bias(conv(x))), IMAGE),
    "conv2d, bias, sigmoid": (lambda x: relay.sigmoid(bias(conv(x))), IMAGE),
    "conv2d, bias, clip": (lambda x: relay.clip(bias(conv(x)), 0, 6), IMAGE),
    "conv2d, bias, swish": (lambda x: swish(bias(conv(x))), IMAGE),
    "conv2d, bias, gelu": (lambda x: gelu(bias(conv(x))), IMAGE),
    "conv2d, bn, relu": (lambda x: nn.relu(norm(bias(conv(x)))), IMAGE),
    "conv2d, bias, sum, relu": (lambda x: nn.relu(bias(conv(x)) + x), IMAGE),
    "sum of two conv2d": (lambda x: nn.relu(bias(conv(x)) + bias(conv(x, kernel=1))), IMAGE),
    "conv2d_transpose": (
        lambda x: bias(nn.conv2d_transpose(x, weight(8, 8, 3, 3), channels=8, kernel_size=(3, 3))),
        IMAGE,
    ),
    "conv1d, relu": (
        lambda x: nn.relu(nn.conv1d(x, weight(16, 8, 3), channels=16, kernel_size=3, padding=1)),
        (1, 8, 40),
    ),
    "dense": (dense, VECTOR),
    "dense, bias": (lambda x: bias(dense(x), 16), VECTOR),
    "dense, bias, relu": (lambda x: nn.relu(bias(dense(x), 16)), VECTOR),
    "dense, bias, gelu": (lambda x: gelu(bias(dense(x), 16)), VECTOR),
    "dense, bias, sum": (lambda x: bias(dense(x, units=32), 32) + x, VECTOR),
    "max_pool2d": (lambda x: nn.max_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), IMAGE),
    "avg_pool2d": (lambda x: nn.avg_pool2d(x, (3, 3), (2, 2), padding=(1, 1)), IMAGE),
    "avg_pool2d, counting": (
        lambda x: nn.avg_pool2d(x, (2, 2), (2, 2), padding=(1, 1), count_include_pad=True),
        IMAGE,
    ),
    "global_avg_pool2d": (lambda x: nn.global_avg_pool2d(conv(x)), IMAGE),
    "softmax": (lambda x: nn.softmax(dense(x)), VECTOR),
    "concatenate": (lambda x: relay.concatenate([conv(x), conv(x, kernel=1)], axis=1), IMAGE),
    "residual block": (residual, IMAGE),
    "head": (lambda x: nn.softmax(bias(dense(flat(nn.global_avg_pool2d(conv(x))), 8), 16)), IMAGE),
    "conv3d": (lambda x: nn.relu(nn.conv3d(x, weight(4, 4, 2, 2, 2))), (1, 4, 5, 5, 5)),
    "max_pool3d": (lambda x: nn.max_pool3d(x, (2, 2, 2)), (1, 4, 4, 4, 4)),
    "several nodes": (lambda x: (conv(x) * const(0.5) - x) / (relay.exp(x) + const(1.0)), IMAGE),
}
"""Computed by Convoy from input to output, in one function."""
SHARED: dict[str, tuple[Make, tuple[int, ...]]] = {
    "a host op between": (lambda x: conv(relay.sinh(conv(x))), IMAGE),
    "a host op beside": (lambda x: conv(x) + relay.cosh(conv(x)), IMAGE),
}
"""Computed in part, or not at all, by TVM."""


def built(before: tvm.IRModule, *arrays: Array) -> tuple[list[Array], list[Array], Report]:
    report = Report()
    with convoy.relay.using(report=report):
        library = relay.build(before, target="convoy")
    return run(library, *arrays), run_plain(before, *arrays), report


def assert_close(got: list[Array], want: list[Array]) -> None:
    for mine, theirs in zip(got, want, strict=True):
        assert np.abs(mine - theirs).max() <= 1e-4 * np.abs(theirs).max()


@pytest.mark.parametrize("name", WHOLE)
def test_convoy_computes_all_of_it(name: str) -> None:
    make, shape = WHOLE[name]
    got, want, report = built(module(make, shape), random(*shape))
    assert not report.refusals
    assert len(report.regions) == 1
    assert_close(got, want)


@pytest.mark.parametrize("name", SHARED)
def test_the_rest_is_left_to_tvm_with_a_reason(name: str) -> None:
    make, shape = SHARED[name]
    got, want, report = built(module(make, shape), random(*shape))
    assert report.refusals
    assert_close(got, want)


@pytest.mark.parametrize("op", [relay.exp, relay.sinh], ids=["exp", "sinh"])
def test_a_skip_made_from_the_convolution(op: Callable[[relay.Expr], relay.Expr]) -> None:
    # exp(y) + y with y = conv2d + b: computed once, whether the other op is Convoy's or TVM's
    def make(x: relay.Expr) -> relay.Expr:
        y = bias(conv(x))
        return nn.relu(op(y) + y)

    got, want, report = built(module(make, IMAGE), random(*IMAGE))
    steps = [step for region in report.regions for step in region.steps]
    assert sum(step.startswith("conv2d") for step in steps) == 1
    assert_close(got, want)


def test_a_weight_given_at_run_time() -> None:
    # not Convoy's: its weights are packed when it is compiled
    before = module(lambda x, w: nn.relu(nn.conv2d(x, w)), IMAGE, (8, 8, 3, 3))
    got, want, report = built(before, random(*IMAGE), random(8, 8, 3, 3))
    assert "weight" in report.refusals[0].reason
    assert_close(got, want)


def test_two_inputs_and_two_outputs() -> None:
    def make(x: relay.Expr, y: relay.Expr) -> relay.Expr:
        both = conv(x) + conv(y, kernel=1)
        return relay.Tuple([nn.relu(both), nn.max_pool2d(both, (2, 2), (2, 2))])

    arrays = random(*IMAGE), random(*IMAGE, seed=1)
    got, want, _ = built(module(make, IMAGE, IMAGE), *arrays)
    assert_close(got, want)


def test_params_of_the_host_and_of_the_region(tmp_path_factory: pytest.TempPathFactory) -> None:
    # constants on both sides of the border, exported and loaded again: only the host's are in params
    def make(x: relay.Expr) -> relay.Expr:
        return relay.sinh(nn.relu(conv(x))) * relay.cosh(weight(1, 8, 12, 12))

    before = module(make, IMAGE)
    library = relay.build(convoy.relay.partition_for_convoy(before), target="llvm")
    path = tmp_path_factory.mktemp("library") / "net.so"
    library.export_library(str(path))
    assert_close(run(tvm.runtime.load_module(str(path)), random(*IMAGE)), run_plain(before, random(*IMAGE)))
    assert all(value.numpy().shape != (8, 8, 3, 3) for value in library.params.values())


def test_two_models_in_one_process() -> None:
    # the same shapes and names, other weights: each computes its own
    models = [
        module(lambda x, s=s: nn.relu(nn.conv2d(x, weight(8, 8, 3, 3, seed=s))), IMAGE) for s in (1, 2)
    ]
    libraries = [relay.build(model, target="convoy") for model in models]
    for model, library in zip(models, libraries, strict=True):
        assert_close(run(library, random(*IMAGE)), run_plain(model, random(*IMAGE)))


def test_functions_that_are_not_merged() -> None:
    # merge=False: one function a composite, as of other backends
    cut = convoy.relay.partition_for_convoy(module(residual, IMAGE), merge=False)
    patterns = Counter(str(f.body.op.attrs["Composite"]) for f in external_functions(cut).values())
    assert patterns == {
        "convoy.conv2d_bias": 1,
        "convoy.conv2d_bias_relu": 2,
        "convoy.conv2d_bias_add_relu": 1,
    }
