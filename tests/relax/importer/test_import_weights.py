"""Open sizes that weights say: taken as said, and a call with others ends."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load


def _norm(*names: str) -> dict[str, np.ndarray]:
    return {name: np.linspace(0.5, 1.5, 4).astype(np.float32) for name in names}


def _weight(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


MAP, ROWS = ["n", "c", 6, 6], ["n", "c"]
CASES = {
    "Conv": ("Conv x w", MAP, 4, {"w": _weight(5, 4, 3, 3)}, {}),
    "Conv of groups": ("Conv x w", ["n", "c", "h", "w"], 4, {"w": _weight(6, 2, 3, 3)}, {"group": 2}),
    "depthwise Conv": ("Conv x w", ["n", "c", "t"], 4, {"w": _weight(4, 1, 3)}, {"group": 4}),
    "ConvTranspose": ("ConvTranspose x w", MAP, 4, {"w": _weight(4, 5, 3, 3)}, {}),
    "Gemm": ("Gemm x w", ROWS, 4, {"w": _weight(4, 5)}, {}),
    "Gemm, transposed": ("Gemm x w b", ROWS, 4, {"w": _weight(5, 4), "b": _weight(5)}, {"transB": 1}),
    "MatMul": ("MatMul x w", ROWS, 4, {"w": _weight(4, 5)}, {}),
    "BatchNormalization": ("BatchNormalization x s b m v", MAP, 4, _norm(*"sbmv"), {}),
    "InstanceNormalization": ("InstanceNormalization x s b", MAP, 4, _norm(*"sb"), {}),
    "GroupNormalization": ("GroupNormalization x s b", MAP, 4, _norm(*"sb"), {"num_groups": 2}),
    "LayerNormalization": ("LayerNormalization x s b", ["n", 3, "c"], 4, _norm(*"sb"), {}),
    "LSTM": (
        "LSTM x w r", ["t", 1, "c"], 4, {"w": _weight(1, 8, 4), "r": _weight(1, 8, 2)}, {"hidden_size": 2},
    ),
    "Einsum": ("Einsum x w", ROWS, 4, {"w": _weight(4, 5)}, {"equation": "nc,cd->nd"}),
}  # fmt: skip


@pytest.fixture(params=CASES)
def case(request, make_model):
    node, dims, size, weights, attributes = CASES[request.param]
    op, *inputs = node.split()
    nodes = [helper.make_node(op, inputs, ["y"], **attributes)]
    return make_model(nodes, {"x": dims}, weights, opset=21), dims, size


def _array(dims, size, rng):
    shape = [{"c": size, "h": 7, "w": 6, "t": 5, "n": 2}.get(d, d) for d in dims]
    return rng.standard_normal(shape).astype(np.float32)


def test_as_many_as_the_weights_say_are_computed(case, run_tvm, run_onnx, rng) -> None:
    model, dims, size = case
    x = _array(dims, size, rng)
    np.testing.assert_allclose(run_tvm(load(model), x)[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0, 3, 64])
def test_another_number_ends_the_call(case, size: int, rng) -> None:
    # TVM read beyond the weights: an answer of others' memory, or the end of the process
    model, dims, _ = case
    runner = convoy.load(convoy.compile(model))
    with pytest.raises(ModelError, match=r"expected (sizes that the network takes|float32 .*; give it)"):
        runner.run([_array(dims, size, rng)])


@pytest.mark.slow
def test_a_region_takes_what_has_open_channels(make_model) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", *"sbmv"], ["y"]),
    ]
    model = make_model(nodes, {"x": ["n", "c", "h", "w"]}, {"w": _weight(4, 3, 3, 3), **_norm(*"sbmv")})
    (region,) = convoy.compile(model).report.regions
    assert region


def test_channels_are_as_many_as_the_scales(make_model, run_onnx, rng) -> None:
    # TVM refused the node, in its own words
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["y"]),
    ]
    model = make_model(nodes, {"x": MAP}, _norm("s"), opset=21)
    runner = convoy.load(convoy.compile(model))
    x = _array(MAP, 4, rng)
    np.testing.assert_array_equal(runner.run([x])[0], run_onnx(model, x)[0])
    with pytest.raises(ModelError, match=r"expected float32 \[n, 4, 6, 6\], got float32 \[2, 5, 6, 6\]"):
        runner.run([_array(MAP, 5, rng)])


def test_different_sizes_beside_an_open_one_are_refused(make_model) -> None:
    # the first 5 of 8 columns were added
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Add", ["z", "u"], ["y"])]
    model = make_model(nodes, {"x": ["n", "k"], "u": ["n", "k"]}, {"w": _weight(8, 5)})
    with pytest.raises(ModelError, match="Add y: expected sizes that are equal or 1, got 5 and 8; correct"):
        load(model)


UPDATES = {
    "ScatterND": ([[0], [1]], ["m", 4], (2, 4), (3, 4)),
    "ScatterND of elements": ([[0, 1], [1, 1]], ["m"], (2,), (1,)),
    "ScatterElements": ([[0, 1], [1, 0]], ["m", "k"], (2, 2), (2, 3)),
}


@pytest.mark.parametrize("case", UPDATES)
def test_updates_are_as_many_as_their_places(case: str, make_model, run_tvm, run_onnx, rng) -> None:
    # TVM refused to convert the node, in its own words
    places, dims, fits, wrong = UPDATES[case]
    node = helper.make_node(case.split()[0], ["x", "places", "u"], ["y"])
    model = make_model([node], {"x": ["n", 4], "u": dims}, {"places": np.array(places)})
    x, u = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), fits))
    np.testing.assert_array_equal(run_tvm(load(model), x, u)[0], run_onnx(model, x, u)[0])
    with pytest.raises(ModelError, match="u"):
        convoy.load(convoy.compile(model)).run([x, np.zeros(wrong, np.float32)])


COMPUTED = {
    "BatchNormalization": ("x s s s s", {}, {"s": ["k"]}, {"s": (4,)}, {"s": (3,)}),
    "InstanceNormalization": ("x s s", {}, {"s": ["k"]}, {"s": (4,)}, {"s": (3,)}),
    "GridSample": ("x s", {}, {"s": ["k", "p", "q", 2]}, {"s": (2, 3, 3, 2)}, {"s": (1, 3, 3, 2)}),
}


@pytest.mark.parametrize("op", COMPUTED)
def test_computed_inputs_are_as_many_as_the_data_need(op: str, make_model, run_tvm, run_onnx, rng) -> None:
    # TVM ended the import in its own words, or read behind the shorter one
    inputs, attributes, dims, fits, wrong = COMPUTED[op]
    nodes = [helper.make_node(op, inputs.split(), ["y"], **attributes)]
    model = make_model(nodes, {"x": ["n", "c", "h", "w"], **dims}, opset=20)
    module = load(model)

    def arrays(given):
        shapes = [(2, 4, 5, 6), *given.values()]
        return [np.abs(rng.standard_normal(shape)).astype("float32") for shape in shapes]

    right = arrays(fits)
    np.testing.assert_allclose(run_tvm(module, *right)[0], run_onnx(model, *right)[0], rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, *arrays(wrong))
