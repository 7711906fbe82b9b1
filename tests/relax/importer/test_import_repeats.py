"""repeat_interleave as PyTorch's older exporter writes it: a Loop over slices, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.relax.importer import load
from convoy.relax.importer.read import read
from convoy.relax.importer.repeats import write_repeats

FLOAT, LONG, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def build(axis: int, **changed: Any) -> onnx.ModelProto:
    """Slices of x [3, n] or [n, 3] along an axis, each as often as fed."""
    given = {"part": 1, "on": True, "place": axis, "behind": [[3], []][axis], "stay": -1, **changed}
    wanted = [[-1, 3], [3, -1]][axis]
    steps = [
        helper.make_node("SequenceAt", ["times", "i"], ["time"]),
        helper.make_node("SequenceAt", ["slices", "i"], ["slice"]),
        helper.make_node("Unsqueeze", ["slice", "next"], ["apart"]),
        helper.make_node("Concat", ["before", "time", "behind"], ["sizes"], axis=0),
        helper.make_node("Shape", ["sizes"], ["rank"]),
        helper.make_node("ConstantOfShape", ["rank"], ["ones"], value=_one()),
        helper.make_node("Mul", ["ones", "stay"], ["stays"]),
        helper.make_node("Equal", ["sizes", "stays"], ["same"]),
        helper.make_node("Where", ["same", "ones", "sizes"], ["filled"]),
        helper.make_node("Expand", ["apart", "filled"], ["wide"]),
        helper.make_node("Reshape", ["wide", "wanted"], ["item"]),
        helper.make_node("SequenceInsert", ["list", "item"], ["longer"]),
        helper.make_node("Cast", ["on"], ["goes on"], to=BOOL),
    ]
    body = helper.make_graph(
        steps,
        "repeat",
        [
            helper.make_tensor_value_info("i", LONG, []),
            helper.make_tensor_value_info("going", BOOL, []),
            helper.make_tensor_sequence_value_info("list", FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("goes on", BOOL, []),
            helper.make_tensor_sequence_value_info("longer", FLOAT, None),
        ],
    )
    outer = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "place"], ["size"]),
        helper.make_node("Unsqueeze", ["size", "0"], ["count"]),
        helper.make_node("Shape", ["repeats"], ["many"]),
        helper.make_node("ConstantOfShape", ["many"], ["parts"], value=_one(given["part"])),
        helper.make_node("SplitToSequence", ["repeats", "parts"], ["times"], axis=0),
        helper.make_node("SplitToSequence", ["x", "parts"], ["slices"], axis=axis),
        helper.make_node("SequenceEmpty", [], ["empty"]),
        helper.make_node("Loop", ["count", "true", "empty"], ["items"], body=body),
        helper.make_node("ConcatFromSequence", ["items"], ["y"], axis=axis),
    ]
    constants = {"0": [0], "next": [axis + 1], "place": given["place"], "wanted": wanted, "true": True}
    constants |= {"stay": given["stay"], "on": given["on"]}
    constants |= {"before": [[1], [3, 1]][axis], "behind": np.array(given["behind"], np.int64)}
    graph = helper.make_graph(
        outer,
        "repeats",
        [
            helper.make_tensor_value_info("x", FLOAT, [["n", 3], [3, "n"]][axis]),
            helper.make_tensor_value_info("repeats", LONG, ["m"]),
        ],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.array(x), name) for name, x in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _one(number: int = 1) -> onnx.TensorProto:
    return numpy_helper.from_array(np.array([number], np.int64))


@pytest.mark.parametrize("axis", [0, 1])
def test_slices_are_repeated_as_often_as_a_run_says(axis: int, run_onnx) -> None:
    model = build(axis)
    assert sorted(v.name_hint for v in load(model).functions if "places" in v.name_hint) == ["list_places"]
    runner = convoy.load(convoy.compile(model))
    for repeats in ([2, 0, 1, 3], [5], [0, 0]):
        x = np.random.default_rng(0).random((3, len(repeats))).astype("float32")
        arrays = [np.ascontiguousarray(x.T if axis == 0 else x), np.array(repeats)]
        np.testing.assert_array_equal(runner.run(arrays)[0], run_onnx(model, *arrays)[0])


@pytest.mark.parametrize("repeats", [[2, -2], [1, 1, 1]], ids=["below none", "of other slices"])
def test_a_call_ends_where_repeats_are_none(repeats: list[int]) -> None:
    runner = convoy.load(convoy.compile(build(0)))
    with pytest.raises(convoy.errors.ConvoyError):
        runner.run([np.zeros((2, 3), "float32"), np.array(repeats)])


@pytest.mark.parametrize(
    "other",
    [{"part": 2}, {"on": False}, {"place": 1}, {"behind": [6]}, {"stay": -2}],
    ids=lambda other: next(iter(other)),
)
def test_what_a_loop_does_otherwise_it_still_does(other: dict[str, Any]) -> None:
    network = read(build(0, **other))
    write_repeats(network)
    assert [node.op_type for node in network.graph.node][-2:] == ["Loop", "ConcatFromSequence"]
