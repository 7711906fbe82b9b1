"""Images resized to sizes that data say and padded to a multiple of 32, as torchvision's detectors do."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.report.decision import Report

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64


def padded_network(*, fed: bool) -> onnx.ModelProto:
    """Two halvings of an image that is padded; resized before to sizes that are fed, or as it comes."""
    rng = np.random.default_rng(5)
    weights = [rng.standard_normal(s).astype("float32") / 6 for s in ((8, 3, 3, 3), (8, 8, 3, 3))]
    numbers = {"w0": weights[0], "w1": weights[1], "side": np.array([32]), "more": np.array([31])}
    numbers |= {"none": np.zeros(6, "int64")}
    resize = helper.make_node("Resize", ["x", "", "", "sizes"], ["image"], mode="linear")
    nodes = [
        resize if fed else helper.make_node("Identity", ["x"], ["image"]),
        helper.make_node("Shape", ["image"], ["shape"], start=2),
        helper.make_node("Add", ["shape", "more"], ["above"]),
        helper.make_node("Div", ["above", "side"], ["times"]),
        helper.make_node("Mul", ["times", "side"], ["whole"]),
        helper.make_node("Sub", ["whole", "shape"], ["rest"]),
        helper.make_node("Concat", ["none", "rest"], ["pads"], axis=0),
        helper.make_node("Pad", ["image", "pads"], ["padded"]),
        helper.make_node("Conv", ["padded", "w0"], ["half"], strides=[2, 2], pads=[1] * 4),
        helper.make_node("Relu", ["half"], ["kept"]),
        helper.make_node("Conv", ["kept", "w1"], ["y"], strides=[2, 2], pads=[1] * 4),
    ]
    inputs = [helper.make_tensor_value_info("x", FLOAT, [1, 3, "height", "width"])]
    inputs += [helper.make_tensor_value_info("sizes", LONG, [4])] if fed else []
    outputs = [helper.make_tensor_value_info("y", FLOAT, None)]
    held = [numpy_helper.from_array(value, name) for name, value in numbers.items()]
    graph = helper.make_graph(nodes, "padded", inputs, outputs, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize("fed", [True, False], ids=["sizes that data say", "sizes of the input"])
def test_what_halves_a_padded_image_is_a_region(run_onnx: Any, fed: bool) -> None:
    model, report = padded_network(fed=fed), Report()
    runner = convoy.Runner(convoy.compile(model, report=report))
    assert not any("conv2d" in str(refused) for refused in report.refusals)
    rng = np.random.default_rng(6)
    for height, width in ((50, 70), (64, 96), (31, 33)):
        feeds: dict[str, Any] = {"x": rng.standard_normal((1, 3, 40, 44)).astype("float32")}
        if fed:
            feeds["sizes"] = np.array([1, 3, height, width])
        else:
            feeds["x"] = rng.standard_normal((1, 3, height, width)).astype("float32")
        (expected,), (made,) = run_onnx(model, *feeds.values()), runner.run(feeds)
        np.testing.assert_allclose(made, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
