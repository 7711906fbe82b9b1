"""Transposed convolutions of rows, [N, C, W]: the answer, and one kernel with what follows."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import convoy
from convoy.deploy.runner import Runner
from convoy.report.decision import Report
from relax.onnx_models import make_model, run_onnx

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
    return make_model(nodes, {"x": ["N", 4, 17]}, arrays)


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
    for images in (1, 3):
        x = np.random.default_rng(images).standard_normal((images, 4, 17)).astype(np.float32)
        (wanted,) = run_onnx(model, x)
        np.testing.assert_allclose(runner.run([x])[0], wanted, atol=2e-5 * np.abs(wanted).max())
