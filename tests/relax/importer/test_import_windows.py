"""MaxPool's places, MaxUnpool, Col2Im and DeformConv, of open sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

node = helper.make_node
FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64


def build(
    nodes: list[onnx.NodeProto],
    inputs: dict[str, list[Any]],
    constants: dict[str, Any],
    places: bool = False,
) -> onnx.ModelProto:
    outputs = [("y", FLOAT)] + ([("places", LONG)] if places else [])
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(n, FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in outputs],
        [numpy_helper.from_array(np.array(v), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)


POOLS: dict[str, dict[str, Any]] = {
    "apart": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "padded": {"kernel_shape": [3, 3], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    "columns first": {"kernel_shape": [3, 2], "dilations": [1, 2], "ceil_mode": 1, "storage_order": 1},
    "sequence": {"kernel_shape": [3]},
    "volume": {"kernel_shape": [2, 2, 2], "strides": [2, 1, 2]},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", POOLS)
def test_places_of_the_largest_pixels(name: str, run_onnx, rng) -> None:
    axes = len(POOLS[name]["kernel_shape"])
    open_ = ["n", 3, *(f"d{i}" for i in range(axes))] if axes < 3 else [1, 3, 4, 5, 6]
    model = build([node("MaxPool", ["x"], ["y", "places"], **POOLS[name])], {"x": open_}, {}, places=True)
    runner = convoy.load(convoy.compile(model))
    for shape in [(2, 3, 9, 10, 8), (1, 3, 8, 7, 8)] if axes < 3 else [(1, 3, 4, 5, 6)]:
        x = rng.integers(-9, 0, shape[: 2 + axes]).astype(
            "float32"
        )  # many are equal, and below the padding
        for found, wanted in zip(runner.run([x]), run_onnx(model, x), strict=True):
            np.testing.assert_array_equal(found, wanted)


@pytest.mark.slow
def test_pixels_go_back_where_they_were_found(run_onnx, rng) -> None:
    window = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("MaxPool", ["x"], ["best", "places"], **window),
        node("Relu", ["best"], ["r"]),
        node("MaxUnpool", ["r", "places"], ["y"], **window),
    ]
    model = build(nodes, {"x": ["n", 3, "h", "w"]}, {})
    runner = convoy.load(convoy.compile(model))
    for shape in [(2, 3, 4, 10), (1, 3, 8, 6)]:
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_array_equal(runner.run([x])[0], run_onnx(model, x)[0])


@pytest.mark.parametrize(
    ("attributes", "windows"),
    [({}, (6, 4)), ({"strides": [2, 1], "pads": [1, 1, 1, 0]}, (4, 5)), ({"dilations": [2, 1]}, (5, 4))],
    ids=["plain", "strides and pads", "dilations"],
)
def test_sums_of_the_pixels_of_windows(
    attributes: dict[str, Any], windows: tuple[int, int], run_onnx, rng
) -> None:
    constants = {"image": [7, 6], "block": [2, 3]}
    model = build(
        [node("Col2Im", ["x", "image", "block"], ["y"], **attributes)], {"x": ["n", 12, "l"]}, constants
    )
    x = rng.standard_normal((2, 12, windows[0] * windows[1])).astype("float32")
    found = convoy.load(convoy.compile(model)).run([x])[0]
    np.testing.assert_allclose(found, run_onnx(model, x)[0], rtol=1e-5, atol=1e-5)


def test_a_window_that_a_call_says_is_refused() -> None:
    graph = helper.make_graph(
        [node("Col2Im", ["x", "image", "block"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", FLOAT, [1, 12, 20])]
        + [helper.make_tensor_value_info(n, LONG, [2]) for n in ("image", "block")],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(ModelError, match="Col2Im y: expected a known window"):
        load(model)


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_deformable_convolution(masked: bool, rng) -> None:
    """The product is a convolution of Convoy's; the pixels between others TVM computes."""
    kernel, more = (3, 2), {"group": 2, "offset_group": 2, "strides": [2, 1], "pads": [1, 0, 1, 1]}
    weight = rng.standard_normal((6, 2, *kernel)).astype("float32")
    inputs = {"x": ["n", 4, "h", "w"], "offset": ["n", 2 * 2 * 6, "i", "j"]}
    names = ["x", "weight", "offset", "bias"]
    if masked:
        inputs, names = {**inputs, "mask": ["n", 2 * 6, "i", "j"]}, [*names, "mask"]
    model = build(
        [node("DeformConv", names, ["y"], **more)],
        inputs,
        {"weight": weight, "bias": rng.standard_normal(6).astype("float32")},
    )
    runner = convoy.load(convoy.compile(model))
    for n, h, w in [(2, 7, 8), (1, 5, 6)]:
        out = ((h + 2 - 3) // 2 + 1, w + 1 - 2 + 1)
        given = {
            "x": rng.standard_normal((n, 4, h, w)).astype("float32"),
            "offset": (3 * rng.standard_normal((n, 24, *out))).astype("float32"),  # some beyond the image
            "mask": rng.random((n, 12, *out), np.float32),
        }
        fed = {name: given[name] for name in inputs}
        wanted = ReferenceEvaluator(model).run(None, fed)[0]
        np.testing.assert_allclose(runner.run(fed)[0], wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("misfit", ["offset", "mask"])
def test_a_deformable_convolution_reads_nothing_beyond_its_offsets(misfit: str) -> None:
    # it read another's memory
    model = build(
        [node("DeformConv", ["x", "weight", "offset", "", "mask"], ["y"])],
        {"x": ["n", 2, "h", "w"], "offset": ["on", "oc", "oh", "ow"], "mask": ["mn", "mc", "mh", "mw"]},
        {"weight": np.ones((2, 2, 3, 3), np.float32)},
    )
    runner = convoy.load(convoy.compile(model))
    shapes = {"x": (1, 2, 6, 7), "offset": (1, 18, 4, 5), "mask": (1, 9, 4, 5)}
    given = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}
    assert runner.run(given)[0].shape == (1, 2, 4, 5)
    for axis in range(4):
        shape = [n + (i == axis) for i, n in enumerate(shapes[misfit])]
        with pytest.raises(ModelError, match="expected sizes that the network takes"):
            runner.run({**given, misfit: np.ones(shape, np.float32)})


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("strides", [[1, 1], [2, 3]])
def test_places_by_same_padding_of_open_sizes(mode, strides, run_tvm, run_onnx, rng) -> None:
    pool = node("MaxPool", ["x"], ["y", "places"], kernel_shape=[3, 2], strides=strides, auto_pad=mode)
    model = build([pool], {"x": ["n", 2, "h", "w"]}, {}, places=True)
    module = load(model)
    for size in ((5, 6), (6, 7), (1, 1)):
        x = rng.standard_normal((2, 2, *size)).astype("float32")
        for mine, expected in zip(run_tvm(module, x), run_onnx(model, x), strict=True):
            np.testing.assert_array_equal(mine, expected)


def test_the_first_of_infinities_is_the_largest(run_onnx) -> None:
    model = build(
        [node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2], strides=[2, 2])],
        {"x": ["n", 1, "h", "w"]},
        {},
        places=True,
    )
    x = np.full((1, 1, 4, 4), -np.inf, np.float32)
    x[0, 0, 0, :2] = 1
    wanted = run_onnx(model, x)[1]
    np.testing.assert_array_equal(convoy.load(convoy.compile(model)).run([x])[1], wanted)


def test_columns_that_are_no_windows_of_the_image_end_the_call() -> None:
    # it read another's memory
    model = build(
        [node("Col2Im", ["x", "image", "block"], ["y"])],
        {"x": ["n", 8, "columns"]},
        {"image": np.array([5, 5]), "block": np.array([2, 2])},
    )
    runner = convoy.load(convoy.compile(model))
    assert runner.run([np.ones((1, 8, 16), np.float32)])[0].shape == (1, 2, 5, 5)
    with pytest.raises(ModelError, match="expected sizes that the network takes"):
        runner.run([np.ones((1, 8, 4), np.float32)])
