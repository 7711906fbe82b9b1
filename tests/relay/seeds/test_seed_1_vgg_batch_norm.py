"""Seed 1: VGG with batch norm has one add after each convolution, not two."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relay
from tvm.relay import testing, transform
from tvm.relay.build_module import bind_params_by_name

import convoy.relay
from convoy.relay.dataflow import Dataflow, op_name
from convoy.relay.fold import fold
from convoy.report.decision import Report
from relay.relay_modules import random, run, run_plain

IMAGE = (1, 3, 32, 32)


def vgg_features() -> tvm.IRModule:
    """TVM's own VGG body with batch norms, narrow; its weights are random, so no shift is zero."""
    x = relay.var("x0", shape=IMAGE)
    body = testing.vgg.get_feature(x, [1, 1, 2], [8, 16, 16], batch_norm=True)
    module = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(body), body))
    rng = np.random.default_rng(1)
    weights = {}
    for parameter in transform.InferType()(module)["main"].params[1:]:
        name, shape = parameter.name_hint, [int(n) for n in parameter.checked_type.shape]
        low = 0.1 if "var" in name or "gamma" in name else -0.5
        weights[name] = tvm.nd.array(rng.uniform(low, 0.5, shape).astype(np.float32))
    module["main"] = bind_params_by_name(module["main"], weights)
    return transform.InferType()(module)


def adds_after_each_conv(module: tvm.IRModule) -> list[int]:
    """For every convolution, how many adds with a constant follow it one upon the other."""
    flow = Dataflow(module["main"].body)
    counts = []
    for conv in (call for call in flow.calls if op_name(call) == "nn.conv2d"):
        count, value = 0, conv
        while [op_name(user) for user in flow.users_of(value)] in (["add"], ["nn.bias_add"]):
            (value,) = flow.users_of(value)
            count += 1
        counts.append(count)
    return counts


@pytest.mark.slow
def test_tvm_alone_leaves_two_adds() -> None:
    # the passes of the question: the bias of the convolution and the shift of the batch norm stay apart
    passes = [
        transform.SimplifyInference(),
        transform.FoldConstant(),
        transform.FoldScaleAxis(),
        transform.FoldConstant(),
    ]
    with tvm.transform.PassContext(opt_level=3):
        assert adds_after_each_conv(tvm.transform.Sequential(passes)(vgg_features())) == [2, 2, 2, 2]


def test_the_fold_leaves_one() -> None:
    folded = fold()(vgg_features())
    assert adds_after_each_conv(folded) == [1, 1, 1, 1]
    ops = {op_name(call) for call in Dataflow(folded["main"].body).calls}
    assert ops == {"nn.conv2d", "add", "nn.relu", "nn.max_pool2d"}


@pytest.mark.slow
def test_all_of_it_is_one_region() -> None:
    module, report = vgg_features(), Report()
    with convoy.relay.using(report=report):
        library = relay.build(module, target="convoy")
    assert len(report.regions) == 1
    assert report.flops_share == 1
    (got,), (want,) = run(library, random(*IMAGE)), run_plain(module, random(*IMAGE))
    assert np.abs(got - want).max() <= 1e-4 * np.abs(want).max()
