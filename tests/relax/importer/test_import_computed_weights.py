"""Convolutions whose weights a run computes: in the region, as products, and right at every size."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.report.decision import Report


def _model(
    weight: tuple[int, ...], image: tuple[int | str, ...], attributes: dict[str, Any], bias: bool = False
) -> onnx.ModelProto:
    shapes: dict[str, tuple[int | str, ...]] = {"x": image, "w": weight}
    if bias:
        shapes["b"] = weight[:1]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, of) for name, of in shapes.items()]
    doubled = helper.make_node("Add", ["w", "w"], ["w2"])  # computed, and no input as it came
    node = helper.make_node("Conv", ["x", "w2", *list(shapes)[2:]], ["y"], **attributes)
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([doubled, node], "conv", inputs, [output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weight", "channels", "attributes", "bias"),
    [
        ((8, 1, 3, 3), 8, {"group": 8, "pads": [1, 1, 1, 1]}, False),
        ((6, 8, 3, 3), 8, {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}, True),
        ((8, 1, 6, 6), 8, {"group": 8}, False),  # a tracker's template: more taps than are added up
        ((6, 4, 3, 2), 8, {"group": 2}, False),
        ((4, 96, 3, 4), 192, {"group": 2}, True),  # of open sizes a product for each tap
    ],
)
@pytest.mark.parametrize("image", [("n", "h", "w"), ("n", 12, 13), (1, 12, 13)])
def test_a_computed_weight_is_multiplied_in_the_region(
    weight: tuple[int, ...],
    channels: int,
    attributes: dict[str, Any],
    bias: bool,
    image: tuple[int | str, ...],
) -> None:
    model = _model(weight, (image[0], channels, *image[1:]), attributes, bias)
    report = Report()
    runner = convoy.load(convoy.compile(model, threads=1, report=report))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    assert not [d for d in report.decisions if d.choice == "left" and "weight" in d.reason]
    random = np.random.default_rng(0)
    for batch, height, width in ((1, 12, 13), *([(3, 12, 13)] if image[0] == "n" else [])):
        arrays = [random.standard_normal(s).astype("f") for s in ((batch, channels, height, width), weight)]
        arrays += [random.standard_normal(weight[0]).astype("f")] if bias else []
        (wanted,) = session.run(None, dict(zip(("x", "w", "b"), arrays, strict=False)))
        (got,) = runner.run(arrays)
        assert got.shape == wanted.shape
        assert np.abs(got - wanted).max() <= 1e-5 * np.abs(wanted).max()


def test_a_weight_that_is_made_of_constants_stays_a_convolution() -> None:
    model = _model((8, 8, 3, 3), (1, 8, 12, 13), {"pads": [1, 1, 1, 1]})
    del model.graph.input[1]
    weight = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype("f")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    report = Report()
    convoy.compile(model, report=report, options=convoy.Options(strict=True))
    assert [d for d in report.decisions if "conv2d" in d.node]
    assert not [d for d in report.decisions if "matmul" in d.node]


def test_a_window_larger_than_a_known_image_is_one_line() -> None:
    with pytest.raises(ModelError, match="give a larger input") as raised:
        convoy.compile(_model((2, 3, 7, 7), (1, 3, 4, 4), {}))
    assert "\n" not in str(raised.value)
