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


ROWS = """<ir_version: 9, opset_import: ["": 18]> g (
    float[3, h, w] x, float[3, k, w] u) => (float[a, b, c] y) {{
    zero = Constant<value = int64 {{0}}>() one = Constant<value = int64 {{1}}>()
    first = Constant<value_ints = [{first}]>() end = Constant<value_ints = [{end}]>()
    by = Constant<value_ints = [{step}]>() along = Constant<value_ints = [0]>()
    last = Constant<value_ints = [-1]>() two = Constant<value_ints = [2]>()
    {rows} s = Shape(z) count = Gather(s, one)
    all = Range(zero, count, one) part = Slice(all, first, end, along, by) places = Unsqueeze(part, last)
    turned = Transpose<perm = [1, 0, 2]>(z) new = Transpose<perm = [1, 0, 2]>(u)
    put = ScatterND<reduction = "{how}">(turned, places, new) y = Transpose<perm = [1, 0, 2]>(put) }}"""
"""``z[:, first:end:step] = u`` as PyTorch's exporter writes it; z is x with rows behind."""
TALL = "widths = Constant<value_ints = [0, 0, 0, 0, 7, 0]>() z = Pad(x, widths)"


@pytest.mark.parametrize(("first", "end"), [(0, 3), (3, 2**63 - 1), (2, -4), (-5, -2), (0, 2**63 - 1)])
def test_rows_of_an_open_length_are_put_between_slices(
    first: int, end: int, run_tvm, run_onnx, count_ops
) -> None:
    # transpose(scatter_nd(transpose(z), a .. b, transpose(u)))  =>  concat(z[:, :a], u, z[:, b:])
    model = onnx.parser.parse_model(ROWS.format(rows=TALL, first=first, end=end, step=1, how="none"))
    module = load(model)
    assert not {"scatter_nd", "arange"} & set(count_ops(module))
    check_rows(module, model, first, end, 1, run_tvm, run_onnx)


@pytest.mark.parametrize(
    ("first", "end", "step", "how", "rows"),
    [
        pytest.param(0, 6, 2, "none", TALL, id="every second"),
        pytest.param(0, 3, 1, "add", TALL, id="added to"),
        pytest.param(2, 5, 1, "none", "z = Identity(x)", id="more than there may be"),
    ],
)
def test_rows_that_are_no_run_or_may_not_be_there_stay_scattered(
    first: int, end: int, step: int, how: str, rows: str, run_tvm, run_onnx, count_ops
) -> None:
    model = onnx.parser.parse_model(ROWS.format(rows=rows, first=first, end=end, step=step, how=how))
    module = load(model)
    assert count_ops(module)["scatter_nd"] == 1
    check_rows(module, model, first, end, step, run_tvm, run_onnx, more=7 if rows == TALL else 0)


def check_rows(module, model, first: int, end: int, step: int, run_tvm, run_onnx, more: int = 7) -> None:
    draw = np.random.default_rng(0)
    for height, width in ((6, 4), (9, 1)):
        count = len(range(height + more)[first:end:step])
        x, u = (draw.standard_normal((3, n, width)).astype("float32") for n in (height, count))
        np.testing.assert_allclose(run_tvm(module, x, u)[0], run_onnx(model, x, u)[0], rtol=1e-6)
