"""Pad by some widths below 0 in a mode that repeats elements: those that were cut off are not repeated."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load
from pairs import pairs

FLOAT, LONG, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def pad(mode: str, before: int, after: int, length: int | str, kind: int = FLOAT) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "pads"], ["y"], name="node", mode=mode)],
        "network",
        [helper.make_tensor_value_info("x", kind, [1, length, 3])],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(np.array([0, before, 1, 0, after, -1]), "pads")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.parametrize(
    ("mode", "widths", "kind", "length"),
    pairs(["reflect", "wrap", "edge"], [(-2, 3), (2, -3), (-1, -1)], [FLOAT, LONG, BOOL], ["n", 6]),
)
def test_what_is_left_is_repeated(mode: str, widths: tuple[int, int], kind: int, length: int | str) -> None:
    model = pad(mode, *widths, length, kind)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    runner = convoy.Runner(convoy.compile(model))
    for size in (6, 7, 9) if length == "n" else (6,):
        drawn = np.random.default_rng(size).integers(-9, 9, (1, size, 3))
        x = drawn.astype(helper.tensor_dtype_to_np_dtype(kind))
        np.testing.assert_array_equal(runner.run([x])[0], session.run(None, {"x": x})[0])


def pad_by_input(mode: str, rank: int, kind: int) -> onnx.ModelProto:
    """Widths that a call says, of a tensor whose sizes it says too."""
    graph = helper.make_graph(
        [helper.make_node("Pad", ["x", "pads"], ["y"], name="node", mode=mode)],
        "network",
        [
            helper.make_tensor_value_info("x", kind, [f"n{i}" for i in range(rank)]),
            helper.make_tensor_value_info("pads", LONG, [2 * rank]),
        ],
        [helper.make_tensor_value_info("y", kind, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)


@pytest.mark.slow
@pytest.mark.parametrize(("rank", "kind"), [(1, FLOAT), (1, BOOL), (3, FLOAT), (3, LONG)])
@pytest.mark.parametrize("mode", ["reflect", "wrap", "edge", "constant"])
def test_widths_of_a_call_may_cut(mode: str, rank: int, kind: int) -> None:
    model = pad_by_input(mode, rank, kind)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    runner = convoy.Runner(convoy.compile(model))
    draw = np.random.default_rng(rank)
    for size in (6, 9):
        shape = [size + i for i in range(rank)]
        x = draw.integers(-9, 9, shape).astype(helper.tensor_dtype_to_np_dtype(kind))
        for before, after in ((-2, 3), (3, -2), (-1, -1), (2, 1), (0, 0)):
            pads = np.array([before, *(0, -1)[: rank - 1], after, *(2, 0)[: rank - 1]])
            found, wanted = runner.run([x, pads])[0], session.run(None, {"x": x, "pads": pads})[0]
            np.testing.assert_array_equal(found, wanted, err_msg=f"{shape} by {pads}")


@pytest.mark.parametrize(
    ("mode", "pads"), [("wrap", [-2, 3]), ("edge", [-2, 3]), ("reflect", [-2, 2]), ("reflect", [-3, 3])]
)
def test_widths_of_a_call_that_leave_too_little_end_it(mode: str, pads: list[int]) -> None:
    runner = convoy.Runner(convoy.compile(pad_by_input(mode, 1, FLOAT)))
    with pytest.raises(ModelError, match="expected sizes that the network takes"):
        runner.run([np.zeros(2 if mode != "reflect" else 4, np.float32), np.array(pads)])


@pytest.mark.parametrize(
    ("mode", "before", "after", "least", "left"),
    [("reflect", -2, 3, 4, 2), ("wrap", 2, -4, 1, 0), ("edge", -5, 2, 1, -1)],
)
def test_too_little_that_is_left_is_said(mode: str, before: int, after: int, least: int, left: int) -> None:
    problem = f"Pad node: expected {least} left along axis 1 to pad by, got {left}; cut off less"
    with pytest.raises(ModelError, match=problem):
        load(pad(mode, before, after, 4))
    runner = convoy.Runner(convoy.compile(pad(mode, before, after, "n")))
    with pytest.raises(Exception, match="expected sizes that the network takes"):
        runner.run([np.zeros((1, 4, 3), np.float32)])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [FLOAT, LONG, BOOL])
def test_a_mirror_image_of_more_than_a_call_brings_ends_it(kind: int) -> None:
    # of whole numbers and of bools TVM's own pad read what lies behind the tensor
    runner = convoy.Runner(convoy.compile(pad("reflect", 30, 2, "n", kind)))
    x = np.zeros((1, 31, 3), helper.tensor_dtype_to_np_dtype(kind))
    assert runner.run([x])[0].shape == (1, 63, 3)
    with pytest.raises(Exception, match="expected sizes that the network takes"):
        runner.run([x[:, :4]])


@pytest.mark.parametrize("width", [2**40, 2**62, 2**63 - 1])
def test_a_width_that_no_memory_has_place_for_ends_the_call(width: int) -> None:
    # the bytes of 2^62 floats are counted as 0: what was written lay behind the tensor
    runner = convoy.Runner(convoy.compile(pad_by_input("constant", 1, FLOAT)))
    with pytest.raises(ModelError, match="one that memory has no place for"):
        runner.run([np.zeros(6, np.float32), np.array([0, width])])
