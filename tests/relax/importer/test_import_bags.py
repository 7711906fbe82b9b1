"""EmbeddingBag as PyTorch's older exporter writes it: a Loop over bags, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.relax.importer import load
from convoy.relax.importer.bags import write_bags
from convoy.relax.importer.read import read

FLOAT, LONG, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
TABLE = np.random.default_rng(0).random((9, 5)).astype("float32")


def build(reduction: str, bags: Any, indices: Any, **changed: Any) -> onnx.ModelProto:
    """Bags from fed offsets to the next one's, the last to the end."""
    given = {"axis": 0, "step": 1, "on": True, "count": "ends", **changed}
    mean = {"axes": [given["axis"]]} if reduction == "ReduceMean" else {}
    steps = [
        helper.make_node("Gather", ["starts", "i"], ["start"]),
        helper.make_node("Gather", ["ends", "i"], ["end"]),
        helper.make_node("Unsqueeze", ["start", "0"], ["from"]),
        helper.make_node("Unsqueeze", ["end", "0"], ["to"]),
        helper.make_node("Slice", ["indices", "from", "to", "0", "step"], ["bag"]),
        helper.make_node("Gather", ["table", "bag"], ["rows"]),
        helper.make_node(reduction, ["rows", *(() if mean else ["axis"])], ["row"], keepdims=0, **mean),
        helper.make_node("Cast", ["on"], ["goes on"], to=BOOL),
    ]
    body = helper.make_graph(
        steps,
        "bag",
        [helper.make_tensor_value_info("i", LONG, []), helper.make_tensor_value_info("going", BOOL, [])],
        [
            helper.make_tensor_value_info("goes on", BOOL, []),
            helper.make_tensor_value_info("row", FLOAT, None),
        ],
    )
    outer = [
        helper.make_node("Shape", ["indices"], ["all"]),
        helper.make_node("Concat", ["offsets", "all"], ["starts"], axis=0),
        helper.make_node("Slice", ["starts", "1", "last", "0"], ["ends"]),
        helper.make_node("Shape", [given["count"]], ["bags"]),
        helper.make_node("Gather", ["bags", "first"], ["times"]),
        helper.make_node("Loop", ["times", "true"], ["y"], body=body),
    ]
    constants = {"0": [0], "1": [1], "last": [2**62], "first": 0, "true": True}
    constants |= {"axis": [given["axis"]], "step": [given["step"]], "on": given["on"]}
    weights = [numpy_helper.from_array(np.array(x), name) for name, x in constants.items()]
    graph = helper.make_graph(
        outer,
        "bags",
        [
            helper.make_tensor_value_info("indices", LONG, [indices]),
            helper.make_tensor_value_info("offsets", LONG, [bags]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [*weights, numpy_helper.from_array(TABLE, "table")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


CALLS = [([1, 8, -1, -9, 3, 3], [0, 2, 2, 5]), ([4], [0]), ([0, 2, 5], [0, 1]), ([0, 2, 5], [-2, 0, 9])]


def functions(model: onnx.ModelProto) -> list[str]:
    return sorted(v.name_hint for v in load(model).functions)


@pytest.mark.parametrize("reduction", ["ReduceSum", "ReduceMean"])
def test_bags_of_open_number_are_one_op(reduction: str, run_onnx) -> None:
    model = build(reduction, "bags", "n")
    assert functions(model) == ["add_rows", "main"]
    runner = convoy.load(convoy.compile(model))
    for given in CALLS:
        arrays = [np.array(x) for x in given]
        np.testing.assert_allclose(runner.run(arrays)[0], run_onnx(model, *arrays)[0], rtol=1e-6)


def test_bags_of_a_known_number_are_not_written_out(run_onnx) -> None:
    model = build("ReduceSum", 4, 6)
    assert functions(model) == ["add_rows", "main"]
    arrays = [np.array(x) for x in CALLS[0]]
    np.testing.assert_allclose(
        convoy.load(convoy.compile(model)).run(arrays)[0], run_onnx(model, *arrays)[0], rtol=1e-6
    )


@pytest.mark.parametrize(
    "other",
    [
        {"axis": 1},
        {"step": 2},
        {"on": False},
        {"count": "indices"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_what_a_loop_does_otherwise_it_still_does(other: dict[str, Any]) -> None:
    model = build("ReduceSum", "bags", "n", **other)
    network = read(model)
    write_bags(network)
    assert [node.op_type for node in network.graph.node][-1] == "Loop"
