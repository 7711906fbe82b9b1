"""Networks of TVM's own ``relay.testing`` and of the ONNX zoo, ready to compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relay
from tvm.relay import testing
from tvm.relay.build_module import bind_params_by_name

from convoy import zoo

Workload = Callable[[], tuple[tvm.IRModule, Mapping[str, Any]]]

TESTING: Mapping[str, Workload] = {
    "resnet-50": lambda: testing.resnet.get_workload(num_layers=50),
    "vgg-11-bn": lambda: testing.vgg.get_workload(1, num_layers=11, batch_norm=True),
    "vgg-16": lambda: testing.vgg.get_workload(1, num_layers=16),
    "vgg-16-bn": lambda: testing.vgg.get_workload(1, num_layers=16, batch_norm=True),
    "vgg-19": lambda: testing.vgg.get_workload(1, num_layers=19),
    "vgg-19-bn": lambda: testing.vgg.get_workload(1, num_layers=19, batch_norm=True),
    "mobilenet": lambda: testing.mobilenet.get_workload(1),
    "densenet-121": lambda: testing.densenet.get_workload(densenet_size=121, batch_size=1),
    "squeezenet": lambda: testing.squeezenet.get_workload(1),
    "inception-v3": lambda: testing.inception_v3.get_workload(),
}
"""Networks of ``relay.testing``, at their full size."""


def names() -> list[str]:
    """The networks ``load`` knows."""
    return [*TESTING, *(f"onnx/{name}" for name in zoo.names())]


def load(name: str) -> tvm.IRModule:
    """A network with weights, statistics that do something and no closing softmax; its input is x0."""
    if name in TESTING:
        mod, params = TESTING[name]()
        return before_softmax(mod, with_statistics(params))
    model = zoo.strip_softmax(zoo.load(name.removeprefix("onnx/")))
    return before_softmax(*relay.frontend.from_onnx(model, freeze_params=True))


def with_statistics(params: Mapping[str, Any]) -> dict[str, tvm.nd.NDArray]:
    """Batch norms that do something: random gammas, betas, means and variances."""
    random = np.random.default_rng(0)
    draw = {
        "gamma": lambda shape: random.uniform(0.5, 1, shape),
        "beta": lambda shape: random.standard_normal(shape) * 0.1,
        "mean": lambda shape: random.standard_normal(shape) * 0.1,
        "var": lambda shape: random.uniform(0.5, 1.5, shape),
    }
    changed = {}
    for name, value in params.items():
        make = draw.get(name.rpartition("_")[2])
        changed[name] = tvm.nd.array(make(value.shape).astype("float32")) if make else value
    return changed


def before_softmax(mod: tvm.IRModule, params: Mapping[str, Any]) -> tvm.IRModule:
    """The network without its closing softmax, which would hide an error; its input is x0."""
    body = mod["main"].body
    if isinstance(body, relay.Call) and body.op.name == "nn.softmax":
        body = body.args[0]
    image = relay.var("x0", mod["main"].params[0].checked_type)
    bound = bind_params_by_name(relay.Function(list(mod["main"].params), body), params)
    body = relay.bind(bound.body, {bound.params[0]: image})
    return relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([image], body)))
