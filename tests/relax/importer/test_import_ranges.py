"""Range: as many numbers as there are, however far apart, or one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convoy
from convoy.errors import ModelError

LEAST, LARGEST = -(2**63), 2**63 - 1
SPANS = {
    "int64": [
        (LEAST, LARGEST, 2**62),
        (LEAST, LARGEST, 2**61 + 1),
        (LARGEST, LEAST, -(2**61)),
        (-5, LARGEST, LARGEST),
        (5, LEAST, LEAST),
        (0, 2**53 + 1, 2**52),
        (0, 2**50, 2**48),
        (2**45, 2**45 + 10, 3),
    ],
    "int32": [(-(2**31), 2**31 - 1, 2**30), (2**31 - 1, -(2**31), -(2**30))],
    "float32": [(-3e38, 3e38, 1e38), (0.00034835638, 0.008348357, 0.001), (0, 3e38, 1e38)],
}
USUAL = {
    "int64": [(0, 10, 3), (10, 0, 3), (10, 0, -3), (-9, 9, 2), (5, 5, 1)],
    "int32": [(0, 7, 2), (7, 0, -2)],
    "float32": [(0, 2.5, 0.5), (1, 0, -0.25), (3, 1, 1)],
}


def model(nodes: list[Any], fed: dict[str, list[Any]], constants: dict[str, Any], dtype: str) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "ranges",
        [helper.make_tensor_value_info(name, kind, shape) for name, shape in fed.items()],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array(value, dtype), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def numbered(numbers: tuple[Any, ...], dtype: str, fed: str) -> tuple[onnx.ModelProto, list[Any]]:
    """A Range of which a call is fed what ``fed`` names, and what it is fed."""
    named = dict(zip("abs", numbers, strict=True))
    nodes = [helper.make_node("Range", ["a", "b", "s"], ["r"]), helper.make_node("Add", ["r", "o"], ["y"])]
    constants = {name: value for name, value in named.items() if name not in fed}
    made = model(nodes, {name: [] for name in ["o", *fed]}, constants, dtype)
    return made, [np.array(value, dtype) for value in (0, *(named[name] for name in fed))]


@pytest.mark.slow
@pytest.mark.parametrize("fed", ["", "abs"], ids=["constants", "fed"])
@pytest.mark.parametrize("dtype", SPANS)
def test_what_does_not_fit_the_type_is_counted(dtype: str, fed: str, run_onnx) -> None:
    """The distance from start to limit is more than the type, or a double, holds; the usual stay."""
    runner = None
    for numbers in SPANS[dtype] + USUAL[dtype]:
        made, arrays = numbered(numbers, dtype, fed)
        runner = runner if runner and fed else convoy.load(convoy.compile(made))
        (found,), (wanted,) = runner.run(arrays), run_onnx(made, *arrays, optimized=False)
        assert found.shape == wanted.shape, numbers
        if dtype == "float32":
            np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e32 if numbers[1] > 1e9 else 1e-7)
        else:
            np.testing.assert_array_equal(found, wanted, str(numbers))


def test_of_numbers_that_say_sizes(run_onnx) -> None:
    """By a constant step how many there are is an expression of sizes: what is near, or one line."""
    made, _ = numbered((0, 0, 3), "int64", "ab")
    runner = convoy.load(convoy.compile(made))
    for start, limit in ((2, 9), (-7, 7), (9, 2), (-(2**40) + 1, -(2**40) + 12)):
        arrays = [np.array(n, "int64") for n in (0, start, limit)]
        np.testing.assert_array_equal(runner.run(arrays)[0], run_onnx(made, *arrays)[0])
    for start, limit in ((LARGEST - 5, LARGEST), (LEAST, LEAST + 8), (2**45, 2**45 + 9), (LEAST, LARGEST)):
        with pytest.raises(ModelError, match="expected sizes that the network takes") as error:
            runner.run([np.array(n, "int64") for n in (0, start, limit)])
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [
        ("int64", (0, 5, 0)),
        ("float32", (0, 5, 0)),
        ("float32", (0, np.nan, 1)),
        ("float32", (0, np.inf, 1)),
        ("int64", (LEAST, LARGEST, 1)),
    ],
)
def test_no_number_of_numbers(dtype: str, numbers: tuple[Any, ...]) -> None:
    made, _ = numbered(numbers, dtype, "")
    with pytest.raises(ModelError, match=r"Range r: expected a step that is not 0") as error:
        convoy.compile(made)
    assert "\n" not in str(error.value)
    made, arrays = numbered(numbers, dtype, "abs")
    with pytest.raises(ModelError, match="expected sizes that the network takes") as error:
        convoy.load(convoy.compile(made)).run(arrays)
    assert "\n" not in str(error.value)


def test_what_is_computed_of_a_number_that_ends_an_axis(run_onnx) -> None:
    """n may be as large as it likes where it ends a slice; of n / 2 something is computed beside it."""
    ended = helper.make_node("Slice", ["x", "zero", "n"], ["y"])
    halves = [
        helper.make_node("Slice", ["x", "zero", "n"], ["z"]),
        helper.make_node("Div", ["n", "two"], ["half"]),
        helper.make_node("Add", ["z", "half"], ["y"]),
    ]
    fed, constants = {"x": [5], "n": [1]}, {"zero": [0], "two": [2]}
    x = np.arange(5)
    one, both = (model(nodes, fed, constants, "int64") for nodes in ([ended], halves))
    runner, of_both = (convoy.load(convoy.compile(made)) for made in (one, both))
    for n in (3, LARGEST, 2**41, LEAST):
        found, wanted = runner.run([x, np.array([n])])[0], run_onnx(one, x, np.array([n]))[0]
        np.testing.assert_array_equal(found, wanted)
    for n in (3, 4):
        np.testing.assert_array_equal(
            of_both.run([x, np.array([n])])[0], run_onnx(both, x, np.array([n]))[0]
        )
    for n in (LARGEST, 2**41 + 1, LEAST):
        with pytest.raises(ModelError, match="does not fit"):
            of_both.run([x, np.array([n])])
