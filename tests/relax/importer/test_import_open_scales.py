"""Resize of open sizes by scales whose products float32 rounds, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

FLOAT = TensorProto.FLOAT
FLOOR = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
WAYS: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest"},
    "floor": {"mode": "nearest", **FLOOR},
    "linear": {"mode": "linear"},
    "cubic": {"mode": "cubic"},
}


def build(nodes: list[onnx.NodeProto], shape: list[Any], opset: int = 18, **scales: Any) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(np.array(s, "float32"), name) for name, s in scales.items()]
    x, y = helper.make_tensor_value_info("x", FLOAT, shape), helper.make_tensor_value_info("y", FLOAT, None)
    graph = helper.make_graph(nodes, "network", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def resize(x: str = "x", y: str = "y", by: str = "s", **how: Any) -> onnx.NodeProto:
    return helper.make_node("Resize", [x, "", by], [y], **how)


def compare(model: onnx.ModelProto, shapes: list[tuple[int, ...]], run_onnx: Any, rng: Any) -> None:
    runner = convoy.load(convoy.compile(model))
    for shape in shapes:
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(runner.run([x])[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("scale", [0.3, 0.7, 1.3, 1 / 3])
@pytest.mark.parametrize("way", WAYS)
def test_sizes_are_rounded_as_in_float32(way: str, scale: float, run_onnx, rng) -> None:
    # 90 · 1.3 is 116 and 10 · 0.7 is 7; 3 · 1.3 is 3, and what stays as large is copied
    model = build([resize(**WAYS[way])], ["n", 3, "h", "w"], s=[1, 1, scale, scale])
    small = [(1, 3, 3, 3)] if scale > 0.3 else []
    compare(model, [(1, 3, 90, 170), (2, 3, 10, 7), *small], run_onnx, rng)


def test_none_is_no_size(rng) -> None:
    model = build([resize()], ["n", 3, "h", "w"], s=[1, 1, 0.3, 0.3])
    runner = convoy.load(convoy.compile(model))
    assert runner.run([np.zeros((1, 3, 4, 7), "float32")])[0].shape == (1, 3, 1, 2)
    with pytest.raises(ModelError, match="expected sizes that the network takes"):
        runner.run([np.zeros((1, 3, 4, 3), "float32")])


@pytest.mark.slow
def test_a_fixed_axis_beside_an_open_one(run_onnx, rng) -> None:
    model = build([resize(mode="linear")], ["n", 3, "h", 90], s=[1, 1, 0.7, 1.3])
    assert convoy.load(convoy.compile(model)).run([np.zeros((1, 3, 10, 90), "float32")])[0].shape[3] == 116
    compare(model, [(1, 3, 10, 90), (1, 3, 33, 90)], run_onnx, rng)


@pytest.mark.slow
def test_products_that_float32_does_not_hold(run_onnx, rng) -> None:
    # 9723 · 1741/1024 is 16530.9995, in float32 16531
    model = build([resize(mode="linear")], ["n", 1, "w"], s=[1, 1, 1741 / 1024])
    assert convoy.load(convoy.compile(model)).run([np.zeros((1, 1, 9723), "float32")])[0].shape[2] == 16531
    compare(model, [(1, 1, 9723), (1, 1, 9722)], run_onnx, rng)


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.5, 2.0])
def test_products_that_it_holds_stay_expressions(scale: float, run_tvm, run_onnx, rng) -> None:
    model = build([resize(mode="linear")], ["n", 3, "h", "w"], s=[1, 1, scale, scale])
    module = load(model)
    assert "late" not in module.script()
    for shape in ((1, 3, 9, 6), (1, 3, 2, 2)):
        x = rng.standard_normal(shape).astype("float32")
        np.testing.assert_allclose(run_tvm(module, x)[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_what_stays_as_large_is_copied_along_all_axes_or_none(way: str, run_onnx, rng) -> None:
    model = build([resize(**WAYS[way])], ["n", 3, "h", "w"], s=[1, 1, 1.25, 1.5])
    compare(model, [(1, 3, 3, 1), (1, 3, 3, 2), (1, 3, 4, 1), (1, 3, 5, 5)], run_onnx, rng)


@pytest.mark.parametrize("scales", [(0.75, 0.75), (0.75, 1.5), (1.5, 1.5), (0.7, 1.3)])
def test_before_opset_11_what_shrinks_is_rounded_up(scales: tuple[float, float], run_onnx, rng) -> None:
    node = helper.make_node("Resize", ["x", "s"], ["y"], mode="nearest")
    model = build([node], ["n", 3, "h", "w"], opset=10, s=[1, 1, *scales])
    compare(model, [(1, 3, 13, 11), (1, 3, 90, 32)], run_onnx, rng)


@pytest.mark.slow
@pytest.mark.parametrize("joint", ["Add", "Concat"])
def test_two_sizes_that_a_call_finds_are_joined(joint: str, run_onnx, rng) -> None:
    # the region of the first read what stood behind the cast that finds the second's sizes
    nodes = [
        resize(y="a", mode="linear"),
        resize(y="b", mode="nearest"),
        helper.make_node(joint, ["a", "b"], ["c"], **({"axis": 1} if joint == "Concat" else {})),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    model = build(nodes, ["n", 3, "h", "w"], s=[1, 1, 0.7, 1.3])
    compare(model, [(1, 3, 90, 33), (2, 3, 10, 7)], run_onnx, rng)
