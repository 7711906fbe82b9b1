"""Relay: what the folds make of whole networks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import tvm
from relay_fold_modules import ops
from tvm import relay
from tvm.relay import testing
from tvm.relay.build_module import bind_params_by_name

from convoy.relay.fold import fold
from convoy.report.decision import Report

IMAGE = (3, 32, 32)


def resnet() -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    """18 layers; its first op is a batch norm of the image, and a batch norm and relu precede each conv."""
    return testing.resnet.get_workload(num_layers=18, image_shape=IMAGE, num_classes=10)


def mobilenet() -> tuple[tvm.IRModule, dict[str, tvm.nd.NDArray]]:
    return testing.mobilenet.get_workload(image_shape=IMAGE, num_classes=10)


NETWORKS = {
    "resnet": (resnet, {"conv2d": 21, "multiply": 9}),
    "mobilenet": (mobilenet, {"conv2d": 27, "multiply": 0}),
}
"""Networks, and how many convolutions and multiplies are left: those of sums that a relu follows."""


def network(name: str) -> tvm.IRModule:
    """With parameters that are nobody's neutral element."""
    module, parameters = NETWORKS[name][0]()
    rng = np.random.default_rng(5)
    drawn = {}
    for key, value in parameters.items():
        if value.shape and len(value.shape) == 1:
            low, high = (0.5, 1.5) if key.endswith(("gamma", "var")) else (-0.5, 0.5)
            value = tvm.nd.array(rng.uniform(low, high, value.shape).astype(np.float32))
        drawn[key] = value
    module["main"] = bind_params_by_name(module["main"], drawn)
    data = module["main"].params[0]
    x = relay.var("x0", type_annotation=data.checked_type)
    body = relay.bind(module["main"].body, {data: x})
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], body)))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_batch_norm_goes(name: str) -> None:
    report = Report()
    after = fold(report)(network(name))
    counts = Counter(ops(after))
    assert counts["batch_norm"] == 0
    assert {op: counts[op] for op in NETWORKS[name][1]} == NETWORKS[name][1]
    assert "kept" not in {decision.choice for decision in report.decisions}


@pytest.mark.parametrize("name", NETWORKS)
def test_tvm_finds_nothing_left_to_scale(name: str) -> None:
    # FoldScaleAxis backward changes nothing; folding twice is folding once
    after = fold()(network(name))
    with tvm.transform.PassContext(opt_level=3):
        again = relay.transform.BackwardFoldScaleAxis()(after)
    tvm.ir.assert_structural_equal(relay.transform.InferType()(again), after)
    tvm.ir.assert_structural_equal(fold()(after), after)
