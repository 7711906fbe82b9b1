"""A Scan that cuts frames out of a sequence is one gather; one that does anything else stays a loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load

FLOAT = TensorProto.FLOAT


def frame_scan(
    outer: Sequence[Any],
    steps: Any,
    state: int,
    hop: int,
    *,
    end: int = 2**62,
    listed: bool = True,
    last: bool = True,
    twist: str = "",
    **attributes: Any,
) -> onnx.ModelProto:
    """Frames of ``state + hop`` samples, ``hop`` apart."""
    rank = len(outer) + 1
    names = ["start", "end", "axes", "ones"] if listed or rank > 1 else ["start", "end"]
    axis = -1 if last else rank - 1
    numbers = {"start": hop, "end": end, "axes": axis, "ones": 1}
    order = ["element", "state"] if twist == "turned" else ["state", "element"]
    nodes = [
        helper.make_node("Concat", order, ["frame"], axis=axis),
        helper.make_node("Slice", ["frame", *names], ["next"]),
    ]
    frame = "frame"
    if twist == "doubled":
        nodes.append(helper.make_node("Add", ["frame", "frame"], [frame := "sum"]))
    tensors = {
        n: helper.make_tensor_value_info(n, FLOAT, None) for n in ("state", "element", "next", frame)
    }
    body = helper.make_graph(
        nodes, "body", [tensors["state"], tensors["element"]], [tensors["next"], tensors[frame]]
    )
    ways = {"scan_input_axes": [rank - 1], "scan_output_axes": [rank - 1], **attributes}
    scan = helper.make_node(
        "Scan", ["first", "x"], ["after", "frames"], "cut", body=body, num_scan_inputs=1, **ways
    )
    graph = helper.make_graph(
        [scan],
        "network",
        [
            helper.make_tensor_value_info("first", FLOAT, [*outer, state]),
            helper.make_tensor_value_info("x", FLOAT, [*outer, steps, hop]),
        ],
        [helper.make_tensor_value_info(name, FLOAT, None) for name in ("after", "frames")],
        [numpy_helper.from_array(np.array([numbers[name]]), name) for name in names],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def is_one_gather(model: onnx.ModelProto) -> bool:
    return any(str(var.name_hint) == "frames" for var in load(model).functions)


CASES: dict[str, tuple[tuple[list[Any], Any, int, int], dict[str, Any]]] = {
    "open steps": ((["b"], "t", 6, 4), {}),
    "known steps": (([2], 5, 6, 4), {}),
    "a state of one hop": (([2], "t", 4, 4), {"last": False}),
    "a state shorter than a hop": (([1], "t", 1, 3), {"end": 2**31 - 1}),
    "no axis around": (([], "t", 5, 2), {"listed": False}),
    "two axes around": (([2, "c"], "t", 3, 2), {"scan_input_axes": [-2]}),
}


@pytest.mark.parametrize("name", CASES)
def test_frames(name: str, run_onnx, rng) -> None:
    given, attributes = CASES[name]
    model = frame_scan(*given, **attributes)
    assert is_one_gather(model)
    runner = convoy.load(convoy.compile(model))
    outer, steps, state, hop = given
    for length in (1, 5) if isinstance(steps, str) else (steps,):
        lead = [3 if isinstance(d, str) else d for d in outer]
        arrays = [rng.standard_normal(s).astype("float32") for s in ([*lead, state], [*lead, length, hop])]
        for found, wanted in zip(runner.run(arrays), run_onnx(model, *arrays), strict=True):
            np.testing.assert_array_equal(found, wanted)


TWINS: dict[str, dict[str, Any]] = {
    "an element before the state": {"twist": "turned"},
    "a sum of frames": {"twist": "doubled"},
    "backwards": {"scan_input_directions": [1]},
    "frames along another axis": {"scan_output_axes": [0]},
}


@pytest.mark.parametrize("name", TWINS)
def test_other_scans_stay(name: str, run_tvm, run_onnx, rng) -> None:
    model = frame_scan([2], 3, 6, 4, **TWINS[name])
    assert not is_one_gather(model)
    arrays = [rng.standard_normal(s).astype("float32") for s in ([2, 6], [2, 3, 4])]
    for found, wanted in zip(run_tvm(load(model), *arrays), run_onnx(model, *arrays), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_element_of_another_length_ends_a_call(rng) -> None:
    model = frame_scan([1], "t", 6, 4)
    model.graph.input[1].type.tensor_type.shape.dim[2].dim_param = "h"
    runner = convoy.load(convoy.compile(model))
    shapes = [[1, 6], [1, 3, 5]]
    with pytest.raises(ModelError, match="where one size is meant, it has 5 and 4"):
        runner.run([rng.standard_normal(s).astype("float32") for s in shapes])


def test_an_element_that_is_no_hop_is_refused() -> None:
    # it ended in TVM's words
    model = frame_scan([1], "t", 6, 4)
    (start,) = (t for t in model.graph.initializer if t.name == "start")
    start.CopyFrom(numpy_helper.from_array(np.array([5]), "start"))
    with pytest.raises(ModelError, match="expected elements and a state that fit, got 4 beside 5"):
        load(model)
