"""Real networks end with the fewest ops their batch norms allow."""

from __future__ import annotations

from collections import Counter

import pytest
from fold_modules import ops

from convoy import zoo
from convoy.relax.fold import fold
from convoy.relax.importer import load
from convoy.report.decision import Report

EXPECTED = {
    # conv + bias for each of 53 batch norms, 16 residual adds and the bias of the head
    "resnet50": {"conv2d": 53, "add": 53 + 16 + 1, "multiply": 0},
    # 59 of the 120 batch norms sit behind a conv; the others become a multiply and an add
    "densenet121": {"conv2d": 121, "add": 122, "multiply": 62},
    # conv → batch norm → scale → shift: one bias each, and the head's
    "inception_v2": {"conv2d": 69, "add": 69 + 1, "multiply": 0},
    "mobilenet_v2": {"conv2d": 52, "add": 52 + 10 + 1, "multiply": 0},
    # the depthwise and grouped convs too
    "shufflenet": {"conv2d": 49, "add": 63, "multiply": 0},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPECTED)
def test_network(name):
    # conv → batch_norm (→ scale → shift)  =>  conv → add, all through the network
    before = load(zoo.load(name))
    report = Report()
    counts = Counter(ops(fold(report)(before)))
    assert counts["batch_norm"] == 0
    assert {op: counts[op] for op in EXPECTED[name]} == EXPECTED[name]
    folded = [decision for decision in report.decisions if decision.node.startswith("batch_norm")]
    assert len(folded) == Counter(ops(before))["batch_norm"]
    assert "kept" not in {decision.choice for decision in report.decisions}
