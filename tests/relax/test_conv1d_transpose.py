"""Transposed convolutions of rows, [N, C, W]: the answer, and one kernel with what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.deploy.runner import Runner
from convoy.report.decision import Report

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "strided": {"strides": [2]},
    "uneven padding": {"strides": [3], "pads": [1, 2], "output_padding": [2]},
    "dilated": {"dilations": [2]},
    "grouped": {"group": 2, "strides": [2]},
}


def network(form: dict[str, Any]) -> onnx.ModelProto:
    rng = np.random.default_rng(1)
    groups = form.get("group", 1)
    arrays = {
        "w": rng.standard_normal((4, 6 // groups, 4)).astype(np.float32),
        "b": rng.standard_normal(6).astype(np.float32),
        "v": rng.standard_normal((3, 6, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["c"], name="up", **form),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "v"], ["y"], name="out", pads=[1, 1]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4, 17])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "rows", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("form", FORMS)
def test_it_agrees_and_takes_bias_and_activation(form: str) -> None:
    model, report = network(FORMS[form]), Report()
    runner = Runner(convoy.compile(model, strict=True, report=report))
    taken = [d.reason.split(" in ")[0] for d in report.decisions if d.choice == "taken"]
    assert set(taken) == {"convoy.conv1d_transpose_bias_relu", "convoy.conv1d"}
    (region,) = report.regions
    ups = [step for step in region.steps if "conv1d_transpose" in step]
    assert ups
    assert all("+ bias, relu" in step for step in ups)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for images in (1, 3):
        x = np.random.default_rng(images).standard_normal((images, 4, 17)).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        np.testing.assert_allclose(runner.run([x])[0], wanted, atol=2e-5 * np.abs(wanted).max())
