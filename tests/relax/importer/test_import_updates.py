"""Scattered elements that are a box of a tensor become slices and a concat; others stay scattered."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convoy.relax.importer import load

SHAPE = (2, 5, 6)


def scatter(places: np.ndarray, dtype: int = TensorProto.FLOAT, **attributes: str) -> onnx.ModelProto:
    made = [*places.shape[:-1], *SHAPE[places.shape[-1] :]]
    graph = helper.make_graph(
        [helper.make_node("ScatterND", ["x", "at", "u"], ["y"], **attributes)],
        "network",
        [helper.make_tensor_value_info("x", dtype, SHAPE), helper.make_tensor_value_info("u", dtype, made)],
        [helper.make_tensor_value_info("y", dtype, SHAPE)],
        [numpy_helper.from_array(places.astype("int64"), "at")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def grid(*spans: range) -> np.ndarray:
    """The index of each element of a box."""
    lengths = [len(span) for span in spans]
    return np.array(list(product(*spans))).reshape(*lengths, len(spans))


def check(model: onnx.ModelProto, run_tvm, run_onnx, count_ops, scattered: int) -> None:
    draw = np.random.default_rng(0)
    sizes = [[d.dim_value for d in i.type.tensor_type.shape.dim] for i in model.graph.input]
    dtype = helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    x, u = (draw.integers(0, 100, size).astype(dtype) for size in sizes)
    module = load(model)
    assert count_ops(module)["scatter_nd"] == scattered
    np.testing.assert_array_equal(run_tvm(module, x, u)[0], run_onnx(model, x, u)[0])


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(grid(range(2), range(1, 5), range(1, 6)), id="all but a first row and column"),
        pytest.param(grid(range(1), range(2, 4), range(3)), id="in the middle"),
        pytest.param(grid(range(2), range(5), range(2, 3)), id="one column"),
        pytest.param(grid(range(2), range(5), range(6)), id="all"),
        pytest.param(grid(range(1, 2), range(1, 4)), id="whole rows"),
        pytest.param(grid(range(1, 2)), id="one image"),
        pytest.param(np.array([1, 2, 3]), id="one element"),
        pytest.param(grid(range(-1, 0), range(-3, -1)), id="counted from the end"),
        pytest.param(grid(range(2), range(5), range(2, 3)).reshape(10, 3), id="as a list"),
    ],
)
def test_a_box_is_put_between_slices(places: np.ndarray, run_tvm, run_onnx, count_ops) -> None:
    # scatter_nd(x, box, u)  =>  concat(x before, u, x behind)
    check(scatter(places), run_tvm, run_onnx, count_ops, 0)
    check(scatter(places, TensorProto.INT64), run_tvm, run_onnx, count_ops, 0)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param(grid(range(2), range(0, 5, 2), range(6)), id="every second row"),
        pytest.param(grid(range(2), range(3, -1, -1)), id="backwards"),
        pytest.param(grid(range(2), range(3))[:, :2].transpose(1, 0, 2), id="columns first"),
        pytest.param(np.array([[0, 0], [0, 1], [1, 0], [1, 2]]), id="no box"),
    ],
)
def test_other_elements_stay_scattered(places: np.ndarray, run_tvm, run_onnx, count_ops) -> None:
    check(scatter(places), run_tvm, run_onnx, count_ops, 1)


def test_a_box_that_is_added_stays_scattered(run_tvm, run_onnx, count_ops) -> None:
    check(scatter(grid(range(2), range(1, 3)), reduction="add"), run_tvm, run_onnx, count_ops, 1)
