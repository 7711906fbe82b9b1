"""Axes and scales that a call is fed, against ONNX Runtime; and calls that are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
NONE: list[int] = []


def build(op: str, x: list[Any], fed: tuple[str, int, list[Any]], **attributes: Any) -> onnx.ModelProto:
    name, kind, shape = fed
    inputs = ["x", "", name] if op == "Resize" else ["x", name]
    graph = helper.make_graph(
        [helper.make_node(op, inputs, ["y"], **attributes)],
        "network",
        [helper.make_tensor_value_info("x", FLOAT, x), helper.make_tensor_value_info(name, kind, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def compare(model: onnx.ModelProto, right: list[Any], refused: list[Any], run_onnx: Any) -> None:
    runner = convoy.load(convoy.compile(model))
    for x, numbers in right:
        wanted = run_onnx(model, x, numbers)[0]
        np.testing.assert_allclose(runner.run([x, numbers])[0], wanted, rtol=1e-5, atol=1e-5)
    for x, numbers in refused:
        with pytest.raises(
            ModelError, match="an axis or a scale among their numbers does not fit"
        ) as error:
            runner.run([x, numbers])
        assert "\n" not in str(error.value)
        with pytest.raises(Exception, match=r"Non-zero status|out of bounds|not in valid range"):
            run_onnx(model, x, numbers)


SQUEEZED = [[1, 3], [-1, -3], [3, 1]]
CASES: dict[str, tuple[str, list[Any], list[list[int]], list[list[int]], dict[str, Any]]] = {
    "Squeeze": ("Squeeze", [2, 1, 3, 1], SQUEEZED, [[0, 1], [1, 4]], {}),
    "Unsqueeze": ("Unsqueeze", [2, 3], [[0, 3], [-1, 1], [2, 1]], [[1, 1], [0, 4], [-5, 0]], {}),
    "ReduceSum": ("ReduceSum", [2, 3, 5], [[1, 0], [-1, 0]], [[3, 0], [-4, 1]], {"keepdims": 0}),
}
ANY = {
    "ReduceMean": {},
    "ReduceL2": {"noop_with_empty_axes": 1},
}


@pytest.mark.parametrize("sizes", ["fixed", "open"])
@pytest.mark.parametrize("name", CASES)
def test_axes_that_a_call_is_fed(name: str, sizes: str, run_onnx, rng) -> None:
    op, shape, right, refused, attributes = CASES[name]
    declared = shape if sizes == "fixed" else [f"d{i}" for i in range(len(shape))]
    model = build(op, declared, ("axes", LONG, [2]), **attributes)
    x = rng.standard_normal(shape).astype("float32")
    compare(model, [(x, np.array(a)) for a in right], [(x, np.array(a)) for a in refused], run_onnx)


@pytest.mark.parametrize("op", ANY)
def test_an_open_number_of_axes(op: str, run_onnx, rng) -> None:
    model = build(op, ["n", 3, "w"], ("axes", LONG, ["k"]), **ANY[op])
    xs = [rng.standard_normal(shape).astype("float32") for shape in [(2, 3, 5), (1, 3, 4)]]
    right = [(x, np.array(axes, np.int64)) for x in xs for axes in ([1], [-1, 0], [0, 1, 2], NONE)]
    compare(model, right, [(xs[0], np.array([3]))], run_onnx)


def test_a_result_of_an_open_rank_is_refused() -> None:
    with pytest.raises(ModelError, match="ReduceSum y: expected a known number of axes"):
        load(build("ReduceSum", ["n", 3], ("axes", LONG, ["k"]), keepdims=0))


RESIZES = {
    "nearest": {"mode": "nearest"},
    "linear": {"mode": "linear"},
    "cubic": {"mode": "cubic", "coordinate_transformation_mode": "align_corners"},
}


@pytest.mark.parametrize("how", RESIZES)
def test_resize_by_scales_that_a_call_is_fed(how: str, run_onnx, rng) -> None:
    model = build("Resize", ["n", 3, "h", "w"], ("scales", FLOAT, [4]), **RESIZES[how])
    x = rng.standard_normal((2, 3, 8, 9)).astype("float32")
    right = [(x, np.float32([1, 1, a, b])) for a, b in [(2, 2), (0.7, 1.5), (1, 1), (3, 0.34)]]
    compare(model, right, [(x, np.float32([1, 1, 0, 1])), (x, np.float32([1, 1, 2, -1]))], run_onnx)
    with pytest.raises(ModelError, match="does not fit"):  # nobody mixes images or channels
        convoy.load(convoy.compile(model)).run([x, np.float32([2, 1, 1, 1])])
