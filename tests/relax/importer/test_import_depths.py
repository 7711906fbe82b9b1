"""Convolutions of volumes of open depth: images of neighbouring slices, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

FORMS: dict[str, dict[str, Any]] = {
    "a cube": {"kernel": (3, 3, 3), "pads": [1] * 6},
    "along the depth": {"kernel": (3, 1, 1), "strides": [2, 1, 1], "pads": [1, 0, 0, 0, 0, 0], "group": 2},
    "within a slice": {"kernel": (1, 5, 3), "strides": [1, 2, 2], "pads": [0, 2, 1, 0, 2, 1]},
    "every second slice": {"kernel": (1, 1, 1), "strides": [2, 1, 1]},
    "far apart": {
        "kernel": (2, 3, 3),
        "strides": [3, 2, 1],
        "dilations": [2, 1, 2],
        "pads": [0, 1, 2, 2, 0, 1],
    },
    "each channel": {"kernel": (2, 2, 2), "pads": [1, 0, 1, 0, 1, 0], "group": 4},
    "as wide as before": {"kernel": (3, 3, 3), "strides": [2, 2, 1], "auto_pad": "SAME_UPPER"},
    "the same, in front": {"kernel": (2, 4, 2), "strides": [2, 1, 1], "auto_pad": "SAME_LOWER"},
    "what fits": {"kernel": (2, 3, 3), "auto_pad": "VALID"},
}


TRANSPOSED: dict[str, dict[str, Any]] = {
    "twice as deep": {"kernel": (2, 2, 2), "strides": [2, 2, 2]},
    "slices between": {"kernel": (3, 2, 2), "strides": [2, 2, 2], "pads": [1, 0, 0, 1, 0, 0]},
    "a slice more": {
        "kernel": (3, 3, 3),
        "strides": [2, 2, 2],
        "pads": [1] * 6,
        "output_padding": [1, 1, 1],
    },
    "gaps": {"kernel": (2, 3, 1), "strides": [3, 1, 2], "group": 2},
    "far apart": {"kernel": (3, 2, 2), "dilations": [2, 1, 1], "pads": [3, 0, 0, 1, 0, 0], "group": 4},
    "less deep": {"kernel": (1, 1, 1), "pads": [1, 0, 0, 1, 0, 0]},
}
"""The same of transposed convolutions."""


def volume(
    kernel: tuple[int, ...],
    depth: int | str = "D",
    bias: bool = True,
    *,
    transposed: bool = False,
    **attributes: Any,
) -> onnx.ModelProto:
    """A convolution of a volume with 4 channels into one with 8, and a Relu."""
    rng = np.random.default_rng(3)
    groups = attributes.get("group", 1)
    channels = (4, 8 // groups) if transposed else (8, 4 // groups)
    weight = rng.uniform(-1, 1, (*channels, *kernel)).astype("float32")
    held = {"w": weight} | ({"b": rng.uniform(-1, 1, 8).astype("float32")} if bias else {})
    nodes = [
        helper.make_node("ConvTranspose" if transposed else "Conv", ["x", *held], ["c"], **attributes),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "volume",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", 4, depth, "H", "W"])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "transposed"), [*((form, False) for form in FORMS), *((form, True) for form in TRANSPOSED)]
)
def test_a_volume_of_open_depth(form: str, transposed: bool, run_onnx, rng) -> None:
    model = volume(**(TRANSPOSED if transposed else FORMS)[form], transposed=transposed)
    executable = convoy.compile(model, threads=1)
    taken = {d.node for d in executable.report.decisions if "conv2d" in str(d)}
    assert taken  # a region computes it, where the depth was TVM's
    runner = convoy.Runner(executable)
    for shape in ((1, 4, 9, 12, 11), (3, 4, 4, 7, 9), (2, 4, 3, 8, 8)):
        x = rng.uniform(-1, 1, shape).astype("float32")
        (found,), (wanted,) = runner.run([x]), run_onnx(model, x)
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["along the depth", "within a slice"])
def test_of_a_kernel_of_one_depth_or_one_pixel_no_slices_lie_side_by_side(form: str, count_ops) -> None:
    # TVM makes them between regions: a network of such kernels is in pieces
    module = load(volume(**FORMS[form]))
    assert count_ops(module)["nn.conv2d"] == 1
    assert not any("slices" in var.name_hint for var in module.get_global_vars())


def test_doubles_of_open_depth_stay_doubles(rng) -> None:
    # ONNX Runtime has no such kernel
    model = volume((3, 1, 1), bias=False)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    weight = numpy_helper.to_array(model.graph.initializer[0]).astype("float64")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    x = rng.uniform(-1, 1, (1, 4, 5, 6, 6))
    (found,) = convoy.Runner(convoy.compile(model)).run([x])
    slices = np.stack([x[:, :, depth : depth + 3] for depth in range(3)])
    wanted = np.maximum(np.einsum("nbcdhw,ocd->bonhw", slices, weight[..., 0, 0]), 0)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
def test_a_known_depth_stays_a_volume(bias: bool, count_ops) -> None:
    kernel = (3, 3, 3)
    assert count_ops(load(volume(kernel, 6, bias)))["nn.conv3d"] == 1
    assert count_ops(load(volume(kernel, "D", bias)))["nn.conv2d"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    ("form", "least"),
    [({}, 3), ({"dilations": [2, 1, 1]}, 5), ({"pads": [1, 0, 0, 0, 0, 0]}, 2)],
    ids=["as it is", "dilated", "padded in front"],
)
def test_a_volume_less_deep_than_its_kernel(
    form: dict[str, Any], least: int, stride: int, run_onnx, rng
) -> None:
    """It is refused in one line, as an image too low is; one as deep gives a slice."""
    model = volume((3, 1, 1), strides=[stride, 1, 1], **form)
    runner = convoy.Runner(convoy.compile(model, threads=1))
    x = rng.uniform(-1, 1, (1, 4, least, 5, 6)).astype("float32")
    (found,), (wanted,) = runner.run([x]), run_onnx(model, x)
    assert found.shape == wanted.shape == (1, 8, 1, 5, 6)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    for depth in range(1, least):
        with pytest.raises(ModelError, match=r"is less than \d; (let D be at|give larger)") as error:
            runner.run([x[:, :, :depth]])
        assert "\n" not in str(error.value)


def test_no_outputs_of_open_depth(run_onnx, rng) -> None:
    model = volume((3, 3, 3))
    for name, shape in (("w", (0, 4, 3, 3, 3)), ("b", (0,))):
        held = next(i for i in model.graph.initializer if i.name == name)
        held.CopyFrom(numpy_helper.from_array(np.empty(shape, "float32"), name))
    x = rng.uniform(-1, 1, (1, 4, 5, 6, 6)).astype("float32")
    (found,) = convoy.Runner(convoy.compile(model)).run([x])
    assert found.shape == run_onnx(model, x, optimized=False)[0].shape == (1, 0, 3, 4, 4)


@pytest.mark.parametrize("depth", ["D", 6], ids=["open", "known"])
@pytest.mark.parametrize(
    ("weight", "bias", "group", "line"),
    [
        ((8, 4, 3, 3, 3), (7,), 1, "expected a bias of 8 numbers, one for each output, got [7]"),
        ((8, 4, 3, 3, 3), (8, 1), 1, "expected a bias of 8 numbers, one for each output, got [8, 1]"),
        ((8, 4, 3, 3, 3), (8,), 3, "expected 12 channels, by the weight and a group of 3, got 4"),
        ((8, 3, 3, 3, 3), (8,), 1, "expected 3 channels, by the weight and a group of 1, got 4"),
        ((7, 2, 3, 3, 3), (7,), 2, "expected outputs that a group of 2 divides, got 7"),
        ((8, 2, 3, 3, 3), (8,), 2, ""),
    ],
)
def test_weights_that_do_not_fit(
    weight: tuple[int, ...], bias: tuple[int, ...], group: int, line: str, depth: int | str
) -> None:
    model = volume((3, 3, 3), depth, group=group)
    for name, shape in (("w", weight), ("b", bias)):
        held = next(i for i in model.graph.initializer if i.name == name)
        held.CopyFrom(numpy_helper.from_array(np.ones(shape, "float32"), name))
    if not line:
        load(model)
        return
    with pytest.raises(ModelError) as error:
        load(model)
    assert str(error.value) == f"import: volume: Conv c: {line}; export the model again"
