"""Pairs that round to 16 bits and back are floats, of which regions are made; ONNX Runtime's answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from convoy.relax.importer import load

KINDS = {np.int16: TensorProto.INT16, np.uint16: TensorProto.UINT16}
EDGES = np.float32([np.nan, np.inf, -np.inf, 1e30, -1e30, 3, -1e-5, -0.0, 0.25, 0.75, -0.25, 0.1])


def network(nodes: list[onnx.NodeProto], shape: tuple[int, ...], **constants: Any) -> onnx.ModelProto:
    kept = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    made = nodes[-1].output[0]
    graph = helper.make_graph(nodes, "net", [x], [helper.make_tensor_value_info(made, 1, None)], kept)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def pair(x: str, y: str, scale: str = "s", back: str = "", **at: int) -> list[onnx.NodeProto]:
    return [
        helper.make_node("QuantizeLinear", [x, scale, "z"], [f"{y}.steps"], name=f"to {y}", **at),
        helper.make_node("DequantizeLinear", [f"{y}.steps", back or scale, "z"], [y], name=f"of {y}", **at),
    ]


def quantises(model: onnx.ModelProto) -> bool:
    return "R.quantize" in load(model).script()


@pytest.mark.parametrize("each", [False, True])
@pytest.mark.parametrize("zero", [0, 100, 32767])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_rounded_is_what_onnx_says(kind: type, zero: int, each: bool, run_tvm, run_onnx) -> None:
    scale = np.float32([0.5, 0.25]) if each else np.float32(0.5)
    x = np.stack([EDGES, EDGES * 7], axis=-1)
    model = network(pair("x", "y", axis=-1), x.shape, s=scale, z=np.full(scale.shape, zero, kind))
    assert not quantises(model)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], run_onnx(model, x)[0])


def test_several_may_read_the_steps_if_all_make_the_same_of_them(run_tvm, run_onnx) -> None:
    other = helper.make_node("DequantizeLinear", ["y.steps", "s2", "z"], ["w"], name="other")
    both = helper.make_node("Sub", ["y", "w"], ["both"])
    x = EDGES[5:]
    for second, rounded in ((0.5, True), (0.25, False)):
        nodes = [*pair("x", "y"), other, both]
        model = network(nodes, x.shape, s=np.float32(0.5), s2=np.float32(second), z=np.int16(3))
        assert quantises(model) is not rounded
        np.testing.assert_array_equal(run_tvm(load(model), x)[0], run_onnx(model, x)[0])


@pytest.mark.parametrize("op", ["Reciprocal", "Div"])
def test_what_is_divided_by_stays_integers_that_have_one_zero(op: str, run_tvm, run_onnx) -> None:
    divide = helper.make_node(op, ["one", "r"][-1 if op == "Reciprocal" else 0 :], ["w"])
    nodes = [*pair("x", "y"), helper.make_node("Relu", ["y"], ["r"]), divide]
    x = EDGES[1:]  # TVM's own conversions lose a NaN
    model = network(nodes, x.shape, s=np.float32(0.5), z=np.int16(0), one=np.float32(1))
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], run_onnx(model, x)[0])
    assert quantises(model)


def test_a_network_of_16_bits_is_one_region(rng) -> None:
    nodes = [
        *pair("x", "a"),
        helper.make_node("Conv", ["a", "w"], ["b"], pads=[1, 1, 1, 1]),
        *pair("b", "c"),
        helper.make_node("Relu", ["c"], ["d"]),
        *pair("d", "e"),
        helper.make_node("Conv", ["e", "w"], ["f"], pads=[1, 1, 1, 1]),
        *pair("f", "g"),
    ]
    weight = rng.standard_normal((16, 16, 3, 3)).astype(np.float32)
    model = network(nodes, (1, 16, 8, 8), w=weight, s=np.float32(0.001), z=np.int16(0))
    report = convoy.compile(model, strict=True).report
    assert len(report.regions) == 1
