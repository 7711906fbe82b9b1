"""Products of bytes written out in floats: the exact sums, where ONNX Runtime's own kernels saturate."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime
import pytest

from convoy.bench.accuracy import reference_outputs
from convoy.bench.integers import write_out_products

K = 6
"""Rows of a matrix, or taps of a convolution, whose products are added."""
X = np.full((1, 4, K), 255, np.uint8) - np.arange(4, dtype=np.uint8).reshape(1, 4, 1)
W = np.full((K, 8), 127, np.int8) - np.arange(8, dtype=np.int8)
SUMS = X.astype(np.int64) @ W.astype(np.int64)
"""Two products alone are up to 255 · 127 · 2, which 16 bits do not hold."""


def parse(inputs: str, output: str, constants: str, body: str) -> onnx.ModelProto:
    header = '<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>'
    return onnx.parser.parse_model(f"{header} m ({inputs}) => ({output} y) <{constants}> {{ {body} }}")


def numbers(array: np.ndarray) -> str:
    return "{" + ", ".join(map(str, array.ravel())) + "}"


MATRIX = f"int8[{K},8] w = {numbers(W)}"
TAPS = f"int8[8,1,{K},1] w = {numbers(W.T)}"
# An odd scale has no ties, which ONNX Runtime rounds either way.
SCALES = (
    f"float one = {{1.0}}, float wide = {{997.0}}, uint8 none = {{0}}, "
    f"float[8] ones = {numbers(np.ones(8))}, int8[8] zeros = {numbers(np.zeros(8, np.int8))}"
)
MODELS = {
    "MatMulInteger": parse(f"uint8[1,4,{K}] x", "int32[1,4,8]", MATRIX, "y = MatMulInteger(x, w)"),
    "QLinearMatMul": parse(
        f"uint8[1,4,{K}] x", "uint8[1,4,8]", f"{MATRIX}, {SCALES}",
        "y = QLinearMatMul(x, one, none, w, ones, zeros, wide, none)",
    ),
    "ConvInteger": parse(f"uint8[1,1,{K},4] x", "int32[1,8,1,4]", TAPS, "y = ConvInteger(x, w)"),
    "QLinearConv": parse(
        f"uint8[1,1,{K},4] x", "uint8[1,8,1,4]",
        f"{TAPS}, {SCALES}, int32[8] b = {{7000, 0, 0, 0, 0, 0, 0, 0}}",
        "y = QLinearConv(x, one, none, w, ones, zeros, wide, none, b)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_products_are_exact(name: str) -> None:
    model, of_maps = MODELS[name], "Conv" in name
    x = X.transpose(0, 2, 1)[:, None].copy() if of_maps else X
    wanted = SUMS.transpose(0, 2, 1)[:, :, None] if of_maps else SUMS
    if name == "QLinearConv":
        wanted = wanted + 7000 * (np.arange(8) == 0).reshape(1, 8, 1, 1)
    if "QLinear" in name:
        wanted = np.rint(wanted / 997).clip(0, 255)
    written = write_out_products(model)
    assert name not in {node.op_type for node in written.graph.node}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(written.SerializeToString(), options)
    for found in (session.run(None, {"x": x})[0], reference_outputs(model, {"x": x})[0]):
        np.testing.assert_array_equal(found, wanted)


SMALL = np.arange(1, 8 * K + 1, dtype=np.int8).reshape(K, 8)
"""No two products of these with bytes up to 60 pass 16 bits, so that ONNX Runtime's own are exact."""
MINE = (
    f"int8[{K},8] w = {numbers(SMALL)}, int8[8,{K}] turned = {numbers(SMALL.T)}, float xs = {{0.5}}, "
    "float ws = {0.25}, float[8] each = {0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0}, uint8 xz = {3}, "
    "int8 wz = {2}, int8[8] zeros = {2, 0, -1, 3, 0, 1, -2, 4}, "
    "float ys = {40.0}, uint8 yz = {9}, int32[8] b = {1, 2, 3, 4, 5, 6, 7, 8}, "
    "float[8] added = {1, 2, 3, 4, 5, 6, 7, 8}"
)
CONTRIBUTED = {
    "MatMulIntegerToFloat": (
        f"uint8[4,{K}] x", "float[4,8]", "MatMulIntegerToFloat(x, w, xs, each, xz, wz, added)"
    ),
    "DynamicQuantizeMatMul": (
        f"float[4,{K}] x", "float[4,8]", "DynamicQuantizeMatMul(x, w, ws, wz, added)"
    ),
    "QGemm": (
        f"uint8[4,{K}] x", "uint8[4,8]",
        "QGemm <alpha = 2.0, transB = 1>(x, xs, xz, turned, ws, wz, b, ys, yz)"
    ),
    "QGemm with a zero point for each row": (
        f"uint8[4,{K}] x", "uint8[4,8]", "QGemm <transB = 1>(x, xs, xz, turned, each, zeros, b, ys, yz)"
    ),
    "QGemm with a zero point for each column": (
        f"uint8[4,{K}] x", "uint8[4,8]", "QGemm(x, xs, xz, w, each, zeros, b, ys, yz)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRIBUTED)
def test_contributed_products_are_those_of_onnx_runtime(name: str) -> None:
    inputs, output, call = CONTRIBUTED[name]
    model = parse(inputs, output, MINE, f"y = com.microsoft.{call}")
    x = (np.arange(4 * K) % 61).reshape(4, K).astype(np.float32 if "float" in inputs else np.uint8)
    answers = [
        onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0]
        for m in (model, write_out_products(model))
    ]
    assert name.split()[0] not in {node.op_type for node in write_out_products(model).graph.node}
    np.testing.assert_allclose(answers[1], answers[0], rtol=1e-6)
    assert np.unique(answers[0]).size > 8


def test_products_of_narrow_weights_are_of_floats_whatever_their_level() -> None:
    packed = np.random.default_rng(0).integers(0, 256, (8, 2, 8)).astype(np.uint8)
    attributes = "K = 32, N = 8, bits = 4, block_size = 16"
    given = f"uint8[8,2,8] w = {numbers(packed)}, float[16] s = {numbers(np.linspace(0.1, 2, 16))}"
    call = f"y = com.microsoft.MatMulNBits <{attributes}, accuracy_level = 4>(x, w, s)"
    x = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    (found,) = reference_outputs(parse("float[4,32] x", "float[4,8]", given, call), {"x": x})
    steps = np.stack([packed & 15, packed >> 4], -1).reshape(8, 2, 16) - 8.0
    weight = (steps * np.linspace(0.1, 2, 16).reshape(8, 2, 1)).reshape(8, 32)
    np.testing.assert_allclose(found, x @ weight.T, rtol=1e-4, atol=1e-4)


def _without_output(node: onnx.NodeProto) -> None:
    del node.output[:]


def _without_inputs(node: onnx.NodeProto) -> None:
    del node.input[4:]


def _of_somebody_else(node: onnx.NodeProto) -> None:
    node.domain = "somebody.else"


@pytest.mark.parametrize("spoil", [_without_output, _without_inputs, _of_somebody_else])
def test_what_is_no_such_product_stays_for_onnx_runtime_to_refuse(spoil: Callable[..., None]) -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODELS["QLinearConv"])
    spoil(model.graph.node[0])
    assert write_out_products(model) == model


@pytest.mark.parametrize("each", [True, False])
def test_an_lstm_of_bytes_is_one_of_dequantised_weights(each: bool) -> None:
    rng = np.random.default_rng(3)
    model = parse(
        "float[5,2,6] x", "float[5,1,2,4]", "",
        "y = com.microsoft.DynamicQuantizeLSTM <hidden_size = 4> (x, w, r, , , , , , ws, wz, rs, rz)",
    )  # fmt: skip
    plain = parse("float[5,2,6] x", "float[5,1,2,4]", "", "y = LSTM <hidden_size = 4> (x, w, r)")
    for name, rows in (("w", 6), ("r", 4)):
        weights, scales = rng.integers(-127, 127, (1, rows, 16)), rng.uniform(0.01, 0.02, (1, 16))
        zeros = np.full((1, 16), 0 if each else 5)
        scales = scales if each else scales[:, :1].repeat(16, 1)
        floats = ((weights - zeros[:, None]) * scales.astype("float32")[:, None]).transpose(0, 2, 1)
        plain.graph.initializer.append(onnx.numpy_helper.from_array(floats.astype("float32"), name))
        cut = slice(None) if each else (slice(None), 0)
        held = ((weights, "int8", ""), (scales[cut], "float32", "s"), (zeros[cut], "int8", "z"))
        for array, dtype, end in held:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array.astype(dtype), name + end))
    x = rng.standard_normal((5, 2, 6)).astype("float32")
    runs = [
        onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0]
        for m in (write_out_products(model), plain)
    ]
    np.testing.assert_allclose(*runs, rtol=1e-5, atol=1e-6)


OF_ONE_SCALE = (
    "float xs = {0.1}, float ws = {0.1}, float ys = {0.02}, uint8 none = {0}, int8 zero = {0}, "
    "int8[1,1,1,1] w = {1}"
)


@pytest.mark.parametrize("opset", [10, 12, 13, 17])
def test_the_other_answer_of_a_product_of_bytes_is_one_of_floats(opset: int) -> None:
    """Halves of whole numbers lie between two bytes, but for what rounding makes of these scales."""
    header = f'<ir_version: 8, opset_import: ["": {opset}]>'
    model = onnx.parser.parse_model(f"""{header} m (uint8[1,1,1,200] x) => (uint8[1,1,1,200] y)
        <{OF_ONE_SCALE}> {{ y = QLinearConv(x, xs, none, w, ws, zero, ys, none) }}""")
    x = {"x": np.arange(200, dtype=np.uint8).reshape(1, 1, 1, 200)}
    plain, optimised = (reference_outputs(model, x, optimised=asked)[0] for asked in (False, True))
    assert np.abs(plain.astype(int) - optimised).max() == 1
    floats = x["x"] * np.float32(0.1) * np.float32(0.1) / np.float32(0.02)
    np.testing.assert_array_equal(plain, np.rint(floats))


def test_scales_of_channels_stay_bytes_before_the_opset_that_dequantises_by_them() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(MODELS["QLinearConv"])
    model.opset_import[0].version = 12
    assert write_out_products(model) == model
