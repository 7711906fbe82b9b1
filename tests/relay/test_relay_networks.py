"""Networks of TVM's own ``relay.testing``, and an ONNX file: everything offloaded, the same answer."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from relay_modules import run
from relay_networks.networks import before_softmax, load, with_statistics
from tvm import relay
from tvm.relay import testing

import convoy
from convoy import zoo
from convoy.relay.partition import external_functions
from convoy.report.decision import Report

LARGE = ("densenet-121", "inception-v3")
SMALL = {
    "vgg11 with batch norm": (
        lambda: testing.vgg.get_workload(1, 100, (3, 32, 32), num_layers=11, batch_norm=True),
        (3, 32, 32),
    ),
    "mobilenet": (lambda: testing.mobilenet.get_workload(1, 100, (3, 64, 64)), (3, 64, 64)),
    "squeezenet": (lambda: testing.squeezenet.get_workload(1, 100, "1.1", (3, 64, 64)), (3, 64, 64)),
}
"""At sizes at which TVM's unoptimized code takes no minutes; full ones: ``scripts/relay-networks``."""


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_a_network_is_one_region(name):
    report = Report()
    with convoy.relay.using(report=report):
        cut = convoy.relay.partition_for_convoy(load(name))
    assert report.flops_share > 0.99
    assert len(external_functions(cut)) == 1


def close(got, want):
    assert np.abs(got - want).max() < 1e-4 * np.abs(want).max()


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_network_gives_the_same_answer(name):
    make, shape = SMALL[name]
    mod, params = make()
    mod = before_softmax(mod, with_statistics(params))
    image = np.random.default_rng(1).standard_normal((1, *shape)).astype(np.float32)
    report = Report()
    with convoy.relay.using(report=report):
        (got,) = run(relay.build(mod, target="convoy"), image)
    with tvm.transform.PassContext(opt_level=0):
        (want,) = run(relay.build(mod, target="llvm"), image)
    assert report.flops_share > 0.99
    close(got, want)


@pytest.mark.slow
def test_an_onnx_network_is_one_region():
    # from_onnx -> partition: with the channel shuffles of a real exporter  =>  nothing left
    model = zoo.load("shufflenet")
    mod, params = relay.frontend.from_onnx(model)
    report = Report()
    with convoy.relay.using(report=report):
        cut = convoy.relay.partition_for_convoy(mod, params)
    assert report.flops_share > 0.99
    assert len(external_functions(cut)) == 1
