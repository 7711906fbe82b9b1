"""Means over boxes, as ONNX Runtime takes them, channel beside channel."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import convoy
from convoy.relax.roi_align import align_by_channels


def boxes_network(channels: int, **attributes: object) -> onnx.ModelProto:
    node = helper.make_node("RoiAlign", ["x", "boxes", "images"], ["y"], **attributes)
    value, kind = helper.make_tensor_value_info, TensorProto.FLOAT
    inputs = [
        value("x", kind, ["n", channels, "h", "w"]),
        value("boxes", kind, ["count", 4]),
        value("images", TensorProto.INT64, ["count"]),
    ]
    graph = helper.make_graph([node], "boxes", inputs, [value("y", kind, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SQUARE = {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.25}


@pytest.mark.parametrize(
    ("channels", "attributes"),
    [
        (16, SQUARE),
        (40, {**SQUARE, "coordinate_transformation_mode": "output_half_pixel"}),
        (5, {"output_height": 3, "output_width": 2, "spatial_scale": 0.5}),
        (1, {"output_height": 2, "output_width": 5, "coordinate_transformation_mode": "output_half_pixel"}),
        (16, {**SQUARE, "mode": "max"}),
        (6, {"mode": "max", "output_height": 3, "output_width": 2, "spatial_scale": 0.5}),
    ],
)
def test_boxes_of_any_size_inside_and_outside(channels: int, attributes: dict[str, object]) -> None:
    model = boxes_network(channels, **attributes)
    theirs = onnxruntime.InferenceSession(model.SerializeToString())
    runner = convoy.Runner(convoy.compile(model))
    rng = np.random.default_rng(channels)
    for images, height, width, count in ((2, 20, 28, 37), (1, 1, 3, 5), (3, 9, 6, 1)):
        x = rng.standard_normal((images, channels, height, width)).astype(np.float32)
        corners = rng.uniform(-20, 130, (count, 2, 2)).astype(np.float32)
        boxes = np.sort(corners, axis=1).reshape(count, 4)
        boxes[0] = boxes[0, [0, 1, 0, 1]]  # of no area
        feeds = {"x": x, "boxes": boxes, "images": rng.integers(0, images, count)}
        (wanted,) = theirs.run(None, feeds)
        (ours,) = runner.run(feeds)
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=1e-5 * max(1, np.abs(wanted).max()))


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_boxes_of_images_that_there_are_not_end_the_call(mode: str) -> None:
    runner = convoy.Runner(convoy.compile(boxes_network(4, mode=mode)))
    x, boxes = np.ones((2, 4, 5, 5), np.float32), np.zeros((2, 4), np.float32)
    for image in (-1, 2):
        with pytest.raises(convoy.errors.ModelError, match=r"their numbers|indices within"):
            runner.run([x, boxes, np.array([0, image])])


@pytest.mark.slow
def test_maps_without_pixels_are_not_read() -> None:
    runner = convoy.Runner(convoy.compile(boxes_network(4, **SQUARE)))
    boxes = np.array([[0, 0, 8, 8]], np.float32)
    assert not runner.run([np.ones((1, 4, 0, 5), np.float32), boxes, np.array([0])])[0].any()


def test_which_are_written_out() -> None:
    def writes(channels: int, **attributes: object) -> bool:
        from convoy.relax.importer import load

        module = align_by_channels()(load(boxes_network(channels, **attributes)))
        return any(var.name_hint == "roi_align" for var, _ in module.functions_items())

    assert writes(16, **SQUARE)
    assert writes(5, output_height=1, output_width=1)
    assert writes(16, **SQUARE, mode="max")  # by the importer, as TVM means another
