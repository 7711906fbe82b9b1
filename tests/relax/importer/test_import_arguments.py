"""Arguments that mean nothing beside the sizes of a node's data, each with a twin that is taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convoy.errors import ModelError
from convoy.relax.importer import load

FLOAT, LONG = TensorProto.FLOAT, TensorProto.INT64
CASES: dict[str, tuple[str, dict[str, Any], Any, Any, str]] = {
    # the op, its attributes, its second input as it may not be and as it may, and what is said
    "CumSum": ("CumSum", {}, 4, -4, "axes of the 4 that there are, each once, got [4]"),
    "GridSample": (
        "GridSample", {}, np.zeros((1, 5, 5, 3), "float32"), np.zeros((1, 5, 5, 2), "float32"),
        "a grid of 2 coordinates for each pixel, got 3",
    ),
    "GridSample of others": (
        "GridSample", {}, np.zeros((3, 5, 5, 2), "float32"), np.zeros((1, 5, 5, 2), "float32"),
        "a grid of as many images as x has, 1, got 3",
    ),
    "PRelu": (
        "PRelu", {}, np.zeros((5, 1, 1), "float32"), np.zeros((3, 1, 1), "float32"),
        "slopes that broadcast with [1, 3, 8, 6], got [5, 1, 1]",
    ),
    "Pad": (
        "Pad", {"mode": "reflect"}, [0, 0, 0, 30, 0, 0, 0, 0], [0, 0, 0, 5, 0, 0, 7, 5],
        "a mirror image of at most 5 along axis 3, got 30",
    ),
    "Pad behind": (
        "Pad", {"mode": "reflect"}, [0, 0, 0, 0, 0, 0, 8, 0], [0, 0, -7, 0, 0, 0, 0, 0],
        "a mirror image of at most 7 along axis 2, got 8",
    ),
    "Split": ("Split", {"axis": 1}, [2, 2], [1, 2], "parts of 3 in all, got [2, 2]"),
    "Split below 0": ("Split", {"axis": 1}, [4, -1], [0, 3], "parts of 3 in all, got [4, -1]"),
    "Squeeze": ("Squeeze", {}, [1], [0], "axes of length 1, got axis 1 of 3"),
    "Tile": ("Tile", {}, [2, 2], [1, 1, 2, 2], "a repeat for each of 4 axes, got [2, 2]"),
    "TopK": ("TopK", {"axis": 1}, [4], [3], "k up to 3, the length of its axis, got 4"),
}  # fmt: skip


def model(op: str, attributes: dict[str, Any], second: Any) -> onnx.ModelProto:
    outputs = ["y", "z"][: 2 if op in ("TopK", "Split") else 1]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "given"], outputs, name="node", **attributes)],
        "network",
        [helper.make_tensor_value_info("x", FLOAT, [1, 3, 8, 6])],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(second), "given")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(("op", "attributes", "wrong", "right", "problem"), CASES.values(), ids=CASES)
def test_what_means_nothing_is_refused_by_its_node(
    op: str, attributes: dict[str, Any], wrong: Any, right: Any, problem: str
) -> None:
    load(model(op, attributes, right))
    with pytest.raises(ModelError) as refused:
        load(model(op, attributes, wrong))
    assert f"{op} node: expected {problem};" in str(refused.value)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_an_axis_is_one_of_the_data_s(op: str) -> None:
    for axis in (3, 4):
        graph = helper.make_graph(
            [helper.make_node(op, ["x"], ["y"], name="node", axis=axis)],
            "network",
            [helper.make_tensor_value_info("x", FLOAT, [1, 3, 8, 6])],
            [helper.make_tensor_value_info("y", LONG, None)],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
        if axis == 3:
            load(made)
        else:
            with pytest.raises(ModelError, match=r"expected axes of the 4 that there are, each once, got"):
                load(made)


@pytest.mark.parametrize("cast", [False, True])
@pytest.mark.parametrize("op", ["Add", "Pow", "Less", "CumSum", "ReduceMean", "Clip"])
def test_truths_are_no_numbers(op: str, cast: bool) -> None:
    """PyTorch's older exporter adds truths up; TVM has means and powers of them, and fails over others."""
    more = {"Add": ["t"], "Pow": ["t"], "Less": ["t"], "CumSum": ["axis"]}.get(op, [])
    graph = helper.make_graph(
        [
            helper.make_node("Greater", ["x", "x"], ["above"]),
            helper.make_node(
                "Cast" if cast else "Not", ["above"], ["t"], **({"to": FLOAT} if cast else {})
            ),
            helper.make_node(op, ["t", *more], ["y"], name="node"),
        ],
        "network",
        [helper.make_tensor_value_info("x", FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(np.int64(1), "axis")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    if cast:
        load(made)
        return
    with pytest.raises(ModelError) as refused:
        load(made)
    assert f"{op} node: expected numbers as input 0, got truths (bool); cast t to" in str(refused.value)
