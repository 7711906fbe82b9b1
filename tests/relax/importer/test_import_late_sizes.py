"""Ops by sizes that a call is fed or computes of data, against ONNX Runtime; and calls that are refused."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

node = helper.make_node
FLOAT, LONG, INT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32
FAR = 2**63 - 1


@dataclass(frozen=True)
class Case:
    nodes: list[onnx.NodeProto]
    fed: dict[str, list[int]]
    """Shapes of the inputs of int64, beside x."""
    right: list[dict[str, Any]]
    """What they are fed, where ONNX Runtime has an answer."""
    refused: list[dict[str, Any]] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)


def pads(*numbers: int) -> dict[str, Any]:
    return {"p": [0, 0, *numbers[:2], 0, 0, *numbers[2:]]}


CASES = {
    "Reshape": Case(
        [node("Reshape", ["x", "s"], ["y"])],
        {"s": [3]},
        [{"s": [2, 3, 80]}, {"s": [2, -1, 10]}, {"s": [0, 0, -1]}, {"s": [4, -1, 0]}],
        [{"s": [7, -1, 3]}, {"s": [2, 3, 81]}, {"s": [2, -5, 48]}, {"s": [-1, -1, 80]}],
    ),
    "Pad": Case(
        [node("Pad", ["x", "p"], ["y"])],
        {"p": [8]},
        [pads(1, 2, 3, 4), pads(-1, 2, 0, -4), pads(0, 0, 9, 9)],
        [pads(-6, 0, -6, 0)],
    ),
    "Expand, to a size at a place from the end": Case(
        [
            node("Shape", ["x"], ["sizes"]),
            node("Gather", ["sizes", "at"], ["size"]),
            node("Expand", ["one", "size"], ["y"]),
        ],
        {"at": [1]},
        [{"at": [0]}, {"at": [3]}, {"at": [-1]}, {"at": [-4]}],
        constants={"one": np.ones(1, np.float32)},
    ),
    "Pad, reflected": Case(
        [node("Pad", ["x", "p"], ["y"], mode="reflect")],
        {"p": [8]},
        [pads(1, 2, 3, 4), pads(7, 9, 0, 0)],
        [pads(0, 0, 9, 9)],
    ),
    "Split": Case(
        [node("Split", ["x", "p"], ["y", "z"], axis=3)],
        {"p": [2]},
        [{"p": [3, 7]}, {"p": [0, 10]}],
        [{"p": [3, 3]}, {"p": [-1, 11]}],
    ),
    "TopK": Case(
        [node("TopK", ["x", "k"], ["y", "places"], axis=2)],
        {"k": [1]},
        [{"k": [3]}, {"k": [8]}, {"k": [0]}],
        [{"k": [9]}, {"k": [-1]}],
    ),
    "Tile": Case(
        [node("Tile", ["x", "times"], ["y"])],
        {"times": [4]},
        [{"times": [1, 2, 1, 3]}, {"times": [1, 2, 0, 3]}],
        [{"times": [1, 2, 1, -1]}],
    ),
    "Expand": Case(
        [node("Expand", ["x", "to"], ["y"])],
        {"to": [5]},
        [{"to": [3, 2, 1, 1, 1]}, {"to": [1, 2, 3, 8, 10]}],
        [{"to": [3, 2, 1, 9, 10]}],
    ),
    "Slice": Case(
        [node("Slice", ["x", "from", "to", "axes"], ["y"])],
        {"from": [1], "to": [1]},
        [
            *({"from": [a], "to": [b]} for a, b in ((2, 5), (-4, -1), (0, 100), (-100, FAR))),
            *({"from": [a], "to": [b]} for a, b in ((5, 2), (20, 30), (-1, -4))),
        ],
        constants={"axes": [3]},
    ),
    "Slice by twos": Case(
        [node("Slice", ["x", "from", "to", "axes", "step"], ["y"])],
        {"from": [1], "to": [1]},
        [{"from": [a], "to": [b]} for a, b in ((2, 5), (-5, -1), (5, 2))],
        constants={"axes": [3], "step": [2]},
    ),
    "Slice backwards": Case(
        [node("Slice", ["x", "from", "to", "axes", "step"], ["y"])],
        {"from": [2], "to": [2]},
        [{"from": [a, 1], "to": [b, 7]} for a, b in ((7, 2), (-1, -9), (2, 7))],
        constants={"axes": [3, 2], "step": [-1, 1]},
    ),
    "Slice from a number that is computed": Case(
        [node("Add", ["from", "one"], ["more"]), node("Slice", ["x", "more", "to", "axes"], ["y"])],
        {"from": [1], "to": [1]},
        [{"from": [a], "to": [b]} for a, b in ((2, 5), (-5, -1), (-1, 9), (-30, 3))],
        constants={"axes": [3], "one": [1]},
    ),
    "ConstantOfShape of an edge, from 0 on": Case(
        [node("Max", ["edge", "none"], ["rows"]), node("ConstantOfShape", ["rows"], ["y"])],
        {"edge": [1]},
        [{"edge": [n]} for n in (4, 0, -3)],
        constants={"none": [0]},
    ),
    "ConstantOfShape of what is left of an edge": Case(
        [
            node("Sub", ["edge", "other"], ["rows"]),
            node("Concat", ["rows", "one"], ["both"], axis=0),
            node("ReduceMax", ["both"], ["most"], keepdims=1),
            node("ConstantOfShape", ["most"], ["y"]),
        ],
        {"edge": [1], "other": [1]},
        [{"edge": [a], "other": [b]} for a, b in ((4, 1), (-1, -3), (-5, 2), (0, 0))],
        constants={"one": [1]},
    ),
    "ConstantOfShape of the larger of two edges": Case(
        [node("Max", ["edge", "other"], ["rows"]), node("ConstantOfShape", ["rows"], ["y"])],
        {"edge": [1], "other": [1]},
        [{"edge": [4], "other": [7]}],
        [{"edge": [-1], "other": [-3]}],
    ),
    "Reshape by numbers put together": Case(
        [node("Concat", ["a", "b"], ["s"], axis=0), node("Reshape", ["x", "s"], ["y"])],
        {"a": [1], "b": [1]},
        [{"a": [6], "b": [-1]}, {"a": [-1], "b": [10]}, {"a": [48], "b": [10]}],
        [{"a": [-1], "b": [-1]}, {"a": [7], "b": [-1]}],
    ),
    "Slice along an axis that is fed": Case(
        [node("Slice", ["x", "from", "to", "axes", "step"], ["y"])],
        {"from": [1], "to": [1], "axes": [1], "step": [1]},
        [
            {"from": [a], "to": [b], "axes": [axis], "step": [step]}
            for a, b, axis, step in (
                (2, 5, 3, 1),
                (9, 2, 3, -2),
                (5, 2, 2, 1),
                (-1, -4, 3, 2),
                (2, 9, -1, -1),
            )
        ],
    ),
    "OneHot": Case(
        [node("Shape", ["x"], ["s"]), node("OneHot", ["s", "depth", "values"], ["y"])],
        {"depth": []},
        [{"depth": 12}, {"depth": 4}],
        [{"depth": -7}],
        {"values": np.array([0, 3], "float32")},
    ),
    "ConstantOfShape": Case(
        [
            node(
                "ConstantOfShape", ["s"], ["a"], value=numpy_helper.from_array(np.array([2.5], "float32"))
            ),
            node("ReduceMean", ["x"], ["m"]),
            node("Add", ["a", "m"], ["y"]),
        ],
        {"s": [4]},
        [{"s": [1, 2, 3, 4]}, {"s": [1, 2, 0, 4]}],
        [{"s": [1, 2, -3, 4]}],
    ),
    "Range": Case(
        [
            node("Range", ["from", "to", "one"], ["r"]),
            node("Cast", ["r"], ["f"], to=FLOAT),
            node("ReduceMean", ["x"], ["m"], keepdims=0),
            node("Add", ["f", "m"], ["y"]),
        ],
        {"from": [], "to": []},
        [{"from": 2, "to": 7}, {"from": 7, "to": 2}, {"from": -9, "to": -2}],
        constants={"one": 1},
    ),
}
RESIZES = {
    f"Resize, {mode}": Case(
        [node("Resize", ["x", "", "", "to"], ["y"], mode=mode)],
        {"to": [4]},
        [{"to": [2, 3, 16, 20]}, {"to": [2, 3, 5, 13]}, {"to": [2, 3, 8, 10]}],
        [{"to": [2, 3, 0, 20]}],
    )
    for mode in ("nearest", "linear", "cubic")
}


def build(case: Case, shape: list[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        case.nodes,
        "network",
        [
            helper.make_tensor_value_info("x", FLOAT, shape),
            *(helper.make_tensor_value_info(name, LONG, fed) for name, fed in case.fed.items()),
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.array(v), name) for name, v in case.constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def feed(case: Case, x: Any, numbers: dict[str, Any]) -> list[Any]:
    return [x, *(np.array(numbers[name], np.int64) for name in case.fed)]


@pytest.mark.slow
@pytest.mark.parametrize("shape", [[2, 3, 8, 10], ["n", 3, "h", "w"]], ids=["fixed", "open"])
@pytest.mark.parametrize("name", CASES | RESIZES)
def test_sizes_that_a_call_is_fed(name: str, shape: list[Any], run_onnx, rng) -> None:
    case = (CASES | RESIZES)[name]
    model = build(case, shape)
    runner = convoy.load(convoy.compile(model))
    x = rng.standard_normal((2, 3, 8, 10)).astype("float32")
    for numbers in case.right:
        found, wanted = (
            run(*feed(case, x, numbers))[0]
            for run in (lambda *i: runner.run(i), lambda *i: run_onnx(model, *i))
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5, err_msg=str(numbers))
    for numbers in case.refused:
        with pytest.raises(ModelError, match="expected sizes that the network takes") as error:
            runner.run(feed(case, x, numbers))
        assert "\n" not in str(error.value)


def test_sizes_of_one_number_are_one_size(run_onnx, rng) -> None:
    """A mask as speech networks make it of their lengths; what is added needs no check, and no copy."""
    nodes = [
        node("ReduceMax", ["lengths"], ["most"], keepdims=0),
        node("Range", ["zero", "most", "one"], ["places"]),
        node("Unsqueeze", ["lengths", "last"], ["column"]),
        node("Less", ["places", "column"], ["inside"]),
        node("Cast", ["inside"], ["mask"], to=FLOAT),
        node("Unsqueeze", ["most", "first"], ["vector"]),
        node("Concat", ["rows", "vector"], ["shape"], axis=0),
        node("ConstantOfShape", ["shape"], ["ones"], value=numpy_helper.from_array(np.ones(1, "float32"))),
        node("Mul", ["ones", "mask"], ["masked"]),
        node("Slice", ["x", "first", "vector", "last"], ["cut"]),
        node("Mul", ["cut", "masked"], ["y"]),
    ]
    numbers = {"zero": 0, "one": 1, "last": [1], "first": [0], "rows": [2]}
    case = Case(nodes, {"lengths": [2]}, [{"lengths": [3, 5]}, {"lengths": [7, 1]}], constants=numbers)
    model = build(case, [2, 9])
    module = load(model)
    assert "stretch" not in module.script()
    runner = convoy.load(convoy.compile(model))
    x = rng.standard_normal((2, 9)).astype("float32")
    for given in case.right:
        inputs = feed(case, x, given)
        np.testing.assert_array_equal(runner.run(inputs)[0], run_onnx(model, *inputs)[0])


def test_a_sum_over_nothing_is_zero(run_onnx, rng) -> None:
    split = node("Split", ["x", "p"], ["none", "z"], axis=3)
    case = Case(
        [split, node("ReduceSum", ["none", "axes"], ["y"])], {"p": [2]}, [], constants={"axes": [3]}
    )
    model = build(case, [2, 3, 8, 10])
    runner = convoy.load(convoy.compile(model))
    x = rng.standard_normal((2, 3, 8, 10)).astype("float32")
    for numbers in ([4, 6], [0, 10], [10, 0], [0, 10]):
        given = feed(case, x, {"p": numbers})
        np.testing.assert_allclose(runner.run(given)[0], run_onnx(model, *given)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [7, "n"])
def test_sizes_behind_the_last_axis_are_known_to_be_none(rows: int | str) -> None:
    # torch.onnx writes x[a, b] = c so, as in shifted windows: the sizes of a and b, then what is left
    constants = {"whole": [14, 14], "two": [2], "far": [2**63 - 1], "zero": [0]}
    graph = helper.make_graph(
        [
            node("Slice", ["whole", "two", "far", "zero"], ["left"]),
            node("Shape", ["x"], ["sizes"]),
            node("Concat", ["sizes", "left"], ["to"], axis=0),
            node("Flatten", ["x"], ["flat"], axis=0),
            node("Reshape", ["flat", "to"], ["y"]),
        ],
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 7])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(v), name) for name, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert "late" not in str(load(model)["main"])


def test_rows_and_their_differences_are_as_many_as_they_were(run_onnx, rng) -> None:
    # by a cast of min(1, n) + max(n - 1, 0) to n TVM writes one in the other until the stack ends
    nodes = [
        node("Compress", ["x", "kept"], ["rows"], axis=0),
        node("Slice", ["rows", "zero", "one", "zero"], ["first"]),
        node("Slice", ["rows", "one", "far", "zero"], ["later"]),
        node("Slice", ["rows", "zero", "last", "zero"], ["earlier"]),
        node("Sub", ["later", "earlier"], ["steps"]),
        node("Concat", ["first", "steps"], ["all"], axis=0),
        node("Add", ["all", "rows"], ["y"]),
    ]
    numbers = {"zero": [0], "one": [1], "last": [-1], "far": [FAR]}
    graph = helper.make_graph(
        nodes,
        "network",
        [
            helper.make_tensor_value_info("x", FLOAT, [9, 4]),
            helper.make_tensor_value_info("kept", TensorProto.BOOL, [9]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.array(v), name) for name, v in numbers.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    runner = convoy.load(convoy.compile(model))
    x = rng.standard_normal((9, 4)).astype("float32")
    for count in (5, 1, 0, 9):
        inputs = [x, np.arange(9) < count]
        np.testing.assert_array_equal(runner.run(inputs)[0], run_onnx(model, *inputs)[0])
