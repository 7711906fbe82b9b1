"""TopK: what ONNX Runtime gives, with a heap of the best so far, not by sorting all."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load


def top(
    dtype: str, shape: list[int | str], k: int | None, axis: int = -1, **attributes: int
) -> onnx.ModelProto:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    node = helper.make_node("TopK", ["x", "k"], ["best", "places"], axis=axis, **attributes)
    inputs = [helper.make_tensor_value_info("x", kind, shape)]
    held = [] if k is None else [numpy_helper.from_array(np.array([k]), "k")]
    if k is None:
        inputs.append(helper.make_tensor_value_info("k", TensorProto.INT64, [1]))
    outputs = [("best", kind), ("places", TensorProto.INT64)]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs]
    graph = helper.make_graph([node], "top", inputs, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def heaps(model: onnx.ModelProto) -> int:
    return sum(var.name_hint.startswith("find_top") for var, _ in load(model).functions_items())


@pytest.mark.parametrize("largest", [1, 0])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int16", "int32", "int64"])
def test_the_best_of_each_row_are_those_of_onnx_runtime(run_onnx: Any, dtype: str, largest: int) -> None:
    model = top(dtype, ["n", 7, 200], None, axis=2, largest=largest)
    assert heaps(model) == 1
    runner = convoy.Runner(convoy.compile(model))
    rng = np.random.default_rng(3)
    for k, most in ((13, 10**6), (200, 50), (1, 4), (50, 3), (0, 9)):  # few values: many are equal
        x = rng.integers(-most, most, (3, 7, 200)).astype(dtype)  # bytes of them, for types of bytes
        for ours, wanted in zip(
            runner.run([x, np.array([k])]), run_onnx(model, x, np.array([k])), strict=True
        ):
            np.testing.assert_array_equal(ours, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_any_axis_of_infinite_numbers_too(run_onnx: Any, axis: int) -> None:
    model = top("float32", ["a", "b", "c"], 3, axis=axis)
    assert heaps(model) == 1
    runner = convoy.Runner(convoy.compile(model))
    rng = np.random.default_rng(4)
    for shape in ((3, 40, 5), (17, 3, 3), (4, 5, 60)):
        x = rng.standard_normal(shape).astype(np.float32)
        x[rng.random(shape) < 0.3] = np.inf
        x[rng.random(shape) < 0.3] = -np.inf
        for ours, wanted in zip(runner.run([x]), run_onnx(model, x), strict=True):
            np.testing.assert_array_equal(ours, wanted)


@pytest.mark.parametrize("dtype", ["float32", "int16"])
@pytest.mark.parametrize("k", [5, 90])
def test_in_any_order_is_in_order(k: int, dtype: str) -> None:
    x = np.random.default_rng(5).permutation(300).reshape(3, 100).astype(dtype)
    found = convoy.Runner(convoy.compile(top(dtype, [3, 100], k, sorted=0))).run([x])
    in_order = -np.sort(-x.astype(np.int64), axis=1)[:, :k]
    np.testing.assert_array_equal(found[0], in_order)
    np.testing.assert_array_equal(np.take_along_axis(x, found[1], 1), in_order)


def test_numbers_that_are_none_are_places_of_the_row(run_onnx: Any) -> None:
    x = np.full((2, 30), np.nan, np.float32)
    x[1, ::2] = np.arange(15)
    _, places = convoy.Runner(convoy.compile(top("float32", [2, "n"], 5))).run([x])
    assert places.min() >= 0
    assert places.max() < 30
    assert all(len(set(row)) == 5 for row in places.tolist())


def test_more_than_there_are_end_the_call() -> None:
    runner = convoy.Runner(convoy.compile(top("float32", [2, "n"], 5)))
    assert runner.run([np.zeros((2, 5), np.float32)])[1].tolist() == [[0, 1, 2, 3, 4]] * 2
    with pytest.raises(ModelError, match="expected sizes that the network takes"):
        runner.run([np.zeros((2, 4), np.float32)])


def test_most_of_few_are_sorted() -> None:
    assert heaps(top("float32", [2, 16], 5)) == 0
    assert heaps(top("float32", [2, 100], 5)) == 1
    assert heaps(top("uint8", [2, 16], 5)) == 0
    assert heaps(top("uint8", [2, 100], 5)) == 1
    assert heaps(top("int16", [2, 16], 5)) == 1  # TVM sorts none


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("shape", [(7,), (2, 5, 40), (2, 5, 0), (2, 0, 40)])
def test_the_best_none_are_none(run_onnx: Any, shape: tuple[int, ...], dtype: str) -> None:
    x = np.ones(shape, dtype)
    for given in (list(shape), [f"size{axis}" for axis in range(len(shape))]):
        for axis in {0, len(shape) - 1}:
            model = top(dtype, given, 0, axis=axis)
            found = convoy.Runner(convoy.compile(model)).run([x])
            for ours, wanted in zip(found, run_onnx(model, x), strict=True):
                assert (ours.shape, ours.dtype) == (wanted.shape, wanted.dtype)
