"""Axes and scales that a call is fed, against ONNX Runtime; and calls that are refused."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

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
            ModelError, match="an axis, scale, length or mode among their numbers does not fit"
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_by_scales_that_a_call_is_fed(mode: str, run_onnx, rng) -> None:
    model = build("Resize", [1, 3, 8, 9], ("scales", FLOAT, [4]), mode=mode, antialias=1)
    x = rng.standard_normal((1, 3, 8, 9)).astype("float32")
    right = [(x, np.float32([1, 1, a, b])) for a, b in [(2, 2), (0.7, 1.5), (1, 1), (3, 0.34), (0.2, 0.9)]]
    compare(model, right, [], run_onnx)


def test_antialiasing_by_scales_that_a_call_is_fed_of_open_sizes_is_refused() -> None:
    with pytest.raises(ModelError, match="antialias, by scales of a call, got open ones"):
        load(build("Resize", ["n", 3, "h", "w"], ("scales", FLOAT, [4]), mode="linear", antialias=1))


@pytest.mark.slow
@pytest.mark.parametrize("how", RESIZES)
def test_resize_by_scales_that_a_call_is_fed(how: str, run_onnx, rng) -> None:
    model = build("Resize", ["n", 3, "h", "w"], ("scales", FLOAT, [4]), **RESIZES[how])
    x = rng.standard_normal((2, 3, 8, 9)).astype("float32")
    right = [(x, np.float32([1, 1, a, b])) for a, b in [(2, 2), (0.7, 1.5), (1, 1), (3, 0.34)]]
    compare(model, right, [(x, np.float32([1, 1, 0, 1])), (x, np.float32([1, 1, 2, -1]))], run_onnx)
    with pytest.raises(ModelError, match="does not fit"):  # nobody mixes images or channels
        convoy.load(convoy.compile(model)).run([x, np.float32([2, 1, 1, 1])])


@pytest.mark.parametrize("op", ["Squeeze", "Unsqueeze"])
def test_one_axis_may_be_a_number_alone(op: str) -> None:
    # ONNX Runtime takes it of an Unsqueeze only
    model = build(op, ["n", 3, 1, 4], ("axes", LONG, []))
    x = np.arange(12, dtype="float32").reshape(1, 3, 1, 4)
    made = convoy.load(convoy.compile(model)).run([x, np.array(2)])[0]
    np.testing.assert_array_equal(made, np.squeeze(x, 2) if op == "Squeeze" else np.expand_dims(x, 2))


def constant_axes(op: str, axes: Any) -> onnx.ModelProto:
    model = build(op, ["n", 3, 1, 4], ("axes", LONG, list(np.shape(axes))))
    model.graph.initializer.append(numpy_helper.from_array(np.array(axes, np.int64), "axes"))
    del model.graph.input[1]
    return model


def test_an_axis_that_is_squeezed_twice_is_squeezed_once(run_tvm, run_onnx, rng) -> None:
    x = rng.standard_normal((2, 3, 1, 4)).astype("float32")
    for axes in ([2, -2], [2, 2, 2, 2, 2], [2]):
        model = constant_axes("Squeeze", axes)
        np.testing.assert_array_equal(run_tvm(load(model), x)[0], run_onnx(model, x)[0])


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        (constant_axes("Squeeze", [7]), "expected axes of the 4 that there are, got [7]"),
        (
            constant_axes("Unsqueeze", [2, 2]),
            "axes of the 6 that there are, each once, got [2, 2]",
        ),
        (constant_axes("ReduceSum", [1, -3]), "axes of the 4 that there are, each once, got [1, -3]"),
        (constant_axes("ReduceL2", [4]), "axes of the 4 that there are, each once, got [4]"),
        (constant_axes("ReduceSum", 1), "expected a vector of axes, got a number alone"),
        (build("ReduceSum", ["n", 3], ("axes", LONG, [])), "expected a vector of axes, got a number alone"),
        (build("Squeeze", ["n", 1], ("axes", LONG, [3])), "expected no more than 2 axes, got 3"),
    ],
)
def test_axes_that_mean_nothing_are_refused(model: onnx.ModelProto, problem: str) -> None:
    with pytest.raises(ModelError, match=re.escape(problem)):
        load(model)


DEPTHS = [(np.float32(4), 4), (np.float32(3.7), 3), (np.int64(5), 5), (np.int32(2), 2)]


@pytest.mark.parametrize(("depth", "length"), DEPTHS)
@pytest.mark.parametrize("axes", [0, 1])
def test_a_depth_of_any_type_is_a_whole_number(depth, length, axes, run_tvm, run_onnx) -> None:
    # TVM's frontend took no float and no vector, and gave float64 for values of float32
    model = one_hot(np.reshape(depth, [1] * axes))
    at = np.array([0, 2, -1, 7])
    (made,) = run_tvm(load(model), at)
    assert made.shape == (4, length)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, run_onnx(model, at)[0])


@pytest.mark.slow
@pytest.mark.parametrize("depth", [np.nan, np.inf, -np.inf, -2, 0, 1e12])
def test_a_depth_that_is_no_size_is_refused_or_ends_the_call(depth: float) -> None:
    # a call ended in std::bad_alloc, or gave a tensor of negative sizes
    with pytest.raises(ModelError, match="expected a depth from 1 to 2"):
        load(one_hot(np.float32(depth)))
    runner = convoy.load(convoy.compile(one_hot(None)))
    assert runner.run([np.array([1]), np.float32(3)])[0].tolist() == [[0, 1, 0]]
    with pytest.raises(ModelError, match="expected sizes that the network takes"):
        runner.run([np.array([1]), np.float32(depth)])


def one_hot(depth: Any) -> onnx.ModelProto:
    """Of a depth that is constant, or fed."""
    fed = [helper.make_tensor_value_info("depth", FLOAT, [])] if depth is None else []
    constants = {"values": np.array([0, 1], np.float32)} | ({} if depth is None else {"depth": depth})
    graph = helper.make_graph(
        [helper.make_node("OneHot", ["x", "depth", "values"], ["y"])],
        "network",
        [helper.make_tensor_value_info("x", LONG, ["n"]), *fed],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
