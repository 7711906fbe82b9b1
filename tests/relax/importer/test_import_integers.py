"""Whole numbers: means of them and their signs, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convoy
from convoy.deploy.runner import Runner

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def run(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    return Runner(convoy.compile(model, "portable")).run([x])


def model_of(
    nodes: list[onnx.NodeProto], dtype: str, shape: list[int | str], constants: dict[str, list[int]]
):
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        nodes,
        "integers",
        [helper.make_tensor_value_info("x", kind, shape)],
        [helper.make_tensor_value_info(node.output[0], kind, None) for node in nodes],
        [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [5, "n"])
def test_a_mean_has_the_type_of_its_numbers_and_is_0_of_none(rows: int | str, run_onnx) -> None:
    # of no numbers the process ended: TVM divided by how many there are
    nodes = [
        helper.make_node("ReduceMean", ["x", axes] if axes else ["x"], [f"y{i}"], keepdims=i % 2)
        for i, axes in enumerate(["first", "first", "both", "last", "", ""])
    ]
    model = model_of(nodes, "int32", [rows, 4], {"first": [0], "both": [0, 1], "last": [-1]})
    for n in (5, 0) if rows == "n" else (5,):
        x = np.random.default_rng(0).integers(-99, 99, (n, 4)).astype("int32")
        for ours, wanted in zip(run(model, x), run_onnx(model, x), strict=True):
            assert ours.dtype == wanted.dtype
            np.testing.assert_array_equal(ours, wanted)


@pytest.mark.slow
def test_a_mean_of_no_numbers_at_all_is_0(run_onnx) -> None:
    nodes = [helper.make_node("ReduceMean", ["x", "first"], ["y"])]
    model = model_of(nodes, "int32", [0, 4], {"first": [0]})
    x = np.zeros((0, 4), np.int32)
    np.testing.assert_array_equal(run(model, x)[0], run_onnx(model, x)[0])


@pytest.mark.parametrize("dtype", INTEGERS)
def test_signs_are_those_of_the_type(dtype: str, run_onnx) -> None:
    # those without one were compared with -1: the model did not compile
    model = model_of([helper.make_node("Sign", ["x"], ["y"])], dtype, ["n"], {})
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, 0, 1, 2, 100, limits.max - 1], dtype)
    np.testing.assert_array_equal(run(model, x)[0], run_onnx(model, x)[0])


@pytest.mark.parametrize("x", [[0, 0, 0], [1, 2, 3], [-1, -2, -3], [-1, 0, 2]])
def test_bytes_of_what_a_run_finds_have_a_scale(x: list[float], run_onnx) -> None:
    # of zeros alone they were 255, with a scale of 0
    node = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"])
    kinds = [onnx.TensorProto.UINT8, onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8]
    outputs = [
        helper.make_tensor_value_info(name, kind, None)
        for name, kind in zip(node.output, kinds, strict=True)
    ]
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3])]
    graph = helper.make_graph([node], "bytes", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    given = np.array(x, np.float32)
    for ours, wanted in zip(run(model, given), run_onnx(model, given), strict=True):
        np.testing.assert_array_equal(ours, wanted)


def test_a_scale_that_others_see_has_the_axes_that_it_has(run_onnx) -> None:
    # convoy check --layers of what quantize_dynamic made: it had as many axes as the sums
    graph = """g (float[1, 4, 5, 5] x) => (float s, float[1, 4, h, w] y, float[c] z)
        <float ws = {0.02}, float[2] v = {1, 2}> {
        q, qs, qz = DynamicQuantizeLinear (x)
        s = Mul (qs, ws)
        i = ConvInteger <group=2> (q, w, qz)
        f = Cast <to=1> (i)
        y = Mul (f, s)
        z = Mul (v, qs) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {graph}')
    generator = np.random.default_rng(0)
    weight = generator.integers(0, 256, (4, 2, 3, 3)).astype("uint8")
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    x = generator.standard_normal((1, 4, 5, 5)).astype("float32")
    found = Runner(convoy.compile(model, threads=1)).run([x])
    for ours, wanted in zip(found, run_onnx(model, x), strict=True):
        assert ours.shape == wanted.shape
        np.testing.assert_allclose(ours, wanted, rtol=1e-6)
