"""Quantised ONNX networks in all their forms: the integers of ONNX Runtime, one unit at ties."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from convoy.relax.importer import load
from convoy.relax.partition import partition
from convoy.report.decision import Report
from pairs import pairs

RESIZE = """({kind}[1,4,6,5] x) => (float[1,4,12,20] y) <float s = {{0.1}}, float[4] n = {{1, 1, 2, 4}}> {{
    r = Resize <mode = "{mode}"> (x, , n)
    y = DequantizeLinear (r, s) }}"""
PAD = """(uint8[1,4,6,5] x) => (float[1,4,7,7] y)
    <float s = {{0.1}}, int64[8] n = {{0, 0, 1, 0, 0, 0, 0, 2}}, uint8 v = {{200}}> {{
    p = Pad <mode = "{mode}"> (x, n{value})
    y = DequantizeLinear (p, s) }}"""


def make(text: str, opset: int = 17) -> onnx.ModelProto:
    header = f'<ir_version: 8, opset_import: ["": {opset}, "com.microsoft": 1]>'
    return parser.parse_model(f"{header} network {text}")


def draw(value: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind == "f":
        return (rng.standard_normal(shape) * 2).astype(dtype)
    if dtype.itemsize > 1:  # places in a table
        return rng.integers(0, 2, shape, dtype)
    return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape, dtype)


U8 = """float xs = {0.02}, uint8 xz = {120}, float ys = {0.05}, uint8 yz = {131}"""
S8 = """float xs = {0.02}, int8 xz = {-3}, float ys = {0.05}, int8 yz = {5}"""
PAIR = f"{U8}, float bs = {{0.031}}, uint8 bz = {{7}}"
B = "int8[6,3] b = {1,-2,3,-4,5,-6,7,-8,9,10,-11,12,100,-90,80,1,2,-3}"
EACH = "float[4] ws = {0.01, 0.02, 0.005, 0.015}, int8[4] wz = {0, 0, 0, 0}"

MODELS = {
    "QLinearConv": f"""(uint8[1,3,8,8] x, int8[4,3,3,3] w) => (uint8[1,4,8,8] y) <{U8}, {EACH}> {{
        y = QLinearConv <pads = [1,1,1,1]> (x, xs, xz, w, ws, wz, ys, yz) }}""",
    "QLinearConv of signed bytes, with a bias": f"""(int8[2,4,8,8] x, int8[4,2,3,3] w)
        => (int8[2,4,3,3] y) <{S8}, {EACH}, int32[4] b = {{400, -900, 30000, 5}}> {{
        y = QLinearConv <strides = [2,2], group = 2> (x, xs, xz, w, ws, wz, ys, yz, b) }}""",
    "QLinearConv of unsigned weights": f"""(uint8[1,3,8,8] x, uint8[4,3,3,3] w) => (uint8[1,4,6,6] y)
        <{U8}, float ws = {{0.01}}, uint8 wz = {{127}}, int32[4] b = {{400, -900, 30000, 5}}> {{
        y = QLinearConv (x, xs, xz, w, ws, wz, ys, yz, b) }}""",
    "QLinearConv of channels last": f"""(uint8[2,5,4,6] x, int8[4,3,3,3] w) => (uint8[2,2,2,4] y)
        <{U8}, {EACH}, int32[4] b = {{400, -900, 30000, 5}}> {{
        y = com.microsoft.QLinearConv <channels_last = 1, group = 2, strides = [2,1], pads = [0,0,0,0]>
            (x, xs, xz, w, ws, wz, ys, yz, b) }}""",
    "QLinearAveragePool of channels last": f"""(uint8[1,8,6,3] x) => (uint8[1,4,3,3] y) <{U8}> {{
        y = com.microsoft.QLinearAveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1],
            channels_last = 1> (x, xs, xz, ys, yz) }}""",
    "NhwcMaxPool": """(int8[1,8,6,3] x) => (int8[1,4,3,3] y) {
        y = com.microsoft.NhwcMaxPool <kernel_shape = [3,2], strides = [2,2], pads = [1,0,1,0]> (x) }""",
    "ops on bytes": f"""(uint8[1,4,6,6] x) => (float[1,216] y) <{U8}> {{
        a, c = Split <axis = 1> (x)
        m = MaxPool <kernel_shape = [3,3], pads = [1,1,1,1]> (a)
        j = Concat <axis = 1> (m, c, a)
        t = Transpose <perm = [0, 2, 3, 1]> (j)
        f = Flatten (t)
        y = DequantizeLinear (f, xs, xz) }}""",
    **{
        f"Resize of {kind}, {mode}": RESIZE.format(kind=kind, mode=mode)
        for kind in ("uint8", "int8")
        for mode in ("nearest", "linear")
    },
    **{
        f"Pad of bytes, {mode}": PAD.format(mode=mode.split(",")[0], value=value)
        for mode, value in (("constant", ", v"), ("constant, of zeros", ""), ("reflect", ""))
    },
    "QLinearMatMul": f"""(uint8[2,4,6] x, int8[6,5] b) => (uint8[2,4,5] y)
        <{U8}, float bs = {{0.1}}, int8 bz = {{-2}}> {{
        y = QLinearMatMul (x, xs, xz, b, bs, bz, ys, yz) }}""",
    "QLinearMatMul, a scale a column": f"""(uint8[4,6] x) => (uint8[4,3] y) <{U8},
        {B},
        float[3] bs = {{0.1, 0.02, 0.3}}, int8[3] bz = {{0, 0, 0}}> {{
        y = QLinearMatMul (x, xs, xz, b, bs, bz, ys, yz) }}""",
    "QGemm": f"""(uint8[4,6] x, int8[5,6] w) => (uint8[4,5] y)
        <{U8}, float ws = {{0.01}}, int8 wz = {{0}}, int32[5] b = {{4, -900, 3000, 5, 17}}> {{
        y = com.microsoft.QGemm <transB = 1> (x, xs, xz, w, ws, wz, b, ys, yz) }}""",
    "QGemm to floats": f"""(uint8[4,6] x, int8[6,5] w) => (float[4,5] y)
        <{U8}, float ws = {{0.01}}, int8 wz = {{0}}> {{
        y = com.microsoft.QGemm <alpha = 0.5> (x, xs, xz, w, ws, wz) }}""",
    "QLinearAdd": f"""(uint8[2,3,4] x, uint8[3,1] b) => (uint8[2,3,4] y) <{PAIR}> {{
        y = com.microsoft.QLinearAdd (x, xs, xz, b, bs, bz, ys, yz) }}""",
    "QLinearMul": f"""(uint8[2,3,4] x, uint8[4] b) => (uint8[2,3,4] y) <{PAIR}> {{
        y = com.microsoft.QLinearMul (x, xs, xz, b, bs, bz, ys, yz) }}""",
    "QLinearAveragePool": f"""(uint8[1,3,8,8] x) => (uint8[1,3,4,4] y) <{U8}> {{
        y = com.microsoft.QLinearAveragePool <kernel_shape = [3,3], strides = [2,2], pads = [1,1,1,1]>
            (x, xs, xz, ys, yz) }}""",
    "QLinearGlobalAveragePool": f"""(uint8[1,3,8,8] x) => (uint8[1,3,1,1] y) <{U8}> {{
        y = com.microsoft.QLinearGlobalAveragePool (x, xs, xz, ys, yz) }}""",
    "QLinearGlobalAveragePool of channels last": f"""(uint8[1,8,8,3] x) => (uint8[1,1,1,3] y) <{U8}> {{
        y = com.microsoft.QLinearGlobalAveragePool <channels_last = 1> (x, xs, xz, ys, yz) }}""",
    "QLinearConcat": f"""(uint8[1,3,4] x, uint8[1,2,4] b) => (uint8[1,5,4] y) <{PAIR}> {{
        y = com.microsoft.QLinearConcat <axis = 1> (ys, yz, x, xs, xz, b, bs, bz) }}""",
    "QLinearLeakyRelu": f"""(int8[2,30] x) => (int8[2,30] y) <{S8}> {{
        y = com.microsoft.QLinearLeakyRelu <alpha = 0.3> (x, xs, xz, ys, yz) }}""",
    "QLinearSigmoid": """(uint8[2,30] x) => (uint8[2,30] y)
        <float xs = {0.02}, uint8 xz = {120}, float ys = {0.00390625}, uint8 yz = {0}> {
        y = com.microsoft.QLinearSigmoid (x, xs, xz, ys, yz) }""",
    "QLinearSoftmax": """(uint8[2,30] x) => (uint8[2,30] y)
        <float xs = {0.02}, uint8 xz = {120}, float ys = {0.00390625}, uint8 yz = {0}> {
        y = com.microsoft.QLinearSoftmax <axis = -1, opset = 13> (x, xs, xz, ys, yz) }""",
    "QLinearWhere": f"""(bool[2,4] c, uint8[2,4] x, uint8[2,4] b) => (uint8[2,4] y) <{PAIR}> {{
        y = com.microsoft.QLinearWhere (c, x, xs, xz, b, bs, bz, ys, yz) }}""",
    "MatMulIntegerToFloat": f"""(uint8[4,6] x, int8[6,5] b) => (float[4,5] y)
        <{U8}, float bs = {{0.1}}, int8 bz = {{-2}}, float[5] c = {{1, 2, 3, 4, 5}}> {{
        y = com.microsoft.MatMulIntegerToFloat (x, b, xs, bs, xz, bz, c) }}""",
    "DynamicQuantizeMatMul": f"""(float[4,6] x) => (float[4,3] y)
        <{B}, float bs = {{0.1}}, int8 bz = {{-2}}> {{
        y = com.microsoft.DynamicQuantizeMatMul (x, b, bs, bz) }}""",
    "QAttention": """(uint8[2,5,8] x, int8[8,24] w) => (float[2,5,8] y) <float xs = {0.02},
        float ws = {0.01}, uint8 xz = {120}, int8 wz = {0},
        float[24] b = {1,0,0,0,0,0,0,0,0,0,0,0,0,0,2,0,0,0,0,0,0,0,0,3}> {
        y = com.microsoft.QAttention <num_heads = 2> (x, w, b, xs, ws, , xz, wz) }""",
    **{
        f"QAttention, {form}": f"""(uint8[2,5,8] x, int8[8,24] w{data}) => (float[2,5,8] y{made}) <
            float xs = {{0.02}}, float ws = {{0.01}}, uint8 xz = {{120}}, int8 wz = {{0}},
            float[24] b = {{1,0,0,0,0,0,0,0,0,0,0,0,0,0,2,0,0,0,0,0,0,0,0,3}}, int32[2] seen = {{3,5}}> {{
            y{more} = com.microsoft.QAttention <num_heads = 2{said}> (x, w, b, xs, ws, {mask}, xz, wz{past})
            }}"""
        for form, said, mask, data, past, made, more in (
            ("a scale", ", scale = 0.9", "", "", "", "", ""),
            ("a value of its mask", ", mask_filter_value = -1.0", "seen", "", "", "", ""),
            ("a cache", ", unidirectional = 1", "", ", float[2,2,2,3,4] past", ", past",
             ", float[2,2,2,8,4] now", ", now"),
        )
    },
    **{
        f"QEmbedLayerNormalization{form}": f"""(int32[2,4] x{given}, uint8[5,8] we, uint8[7,8] pe{se})
            => (float[2,4,8] y, int32[2] n) <uint8[8] g = {{1, 30, 4, 2, 90, 20, 17, 5}},
            uint8[8] h = {{130, 9, 4, 2, 1, 2, 77, 3}}, float a = {{0.02}}, float b = {{0.03}},
            float c = {{0.1}}, uint8 d = {{120}}, uint8 e = {{7}}, uint8 f = {{100}}> {{
            y, n = com.microsoft.QEmbedLayerNormalization <epsilon = 0.01> (
                x, {read}, a, b, {"a" if se else ""}, b, c, d, e, {"d" if se else ""}, e, f) }}"""
        for form, given, se, read in (
            ("", ", int32[2,4] s, int32[2,4] m", ", uint8[2,8] se", "s, we, pe, se, g, h, m"),
            (" without segments", "", "", ", we, pe, , g, h, "),
        )
    },
    "MatMulInteger of what is quantised as it comes": f"""(float[4,6] x) => (float[4,3] y)
        <{B}, float bs = {{0.1}}, int8 bz = {{-2}}> {{
        q, s, z = DynamicQuantizeLinear (x)
        sums = MatMulInteger (q, b, z, bz)
        sumsf = Cast <to = 1> (sums)
        each = Mul (s, bs)
        y = Mul (sumsf, each) }}""",
    "ConvInteger to floats": """(uint8[1,3,8,8] x, int8[4,3,3,3] w) => (float[1,4,6,6] y) <uint8 z = {7}> {
        sums = ConvInteger (x, w, z)
        y = Cast <to = 1> (sums) }""",
    "zero points of columns": f"""(uint8[4,6] x) => (float[4,3] y) <uint8 z = {{7}},
        int8[3] bz = {{1,-2,3}}, {B}> {{
        sums = MatMulInteger (x, b, z, bz)
        y = Cast <to = 1> (sums) }}""",
    "bytes by other names": f"""(float[2,3,4] x) => (float[2,3,4] y) <{U8}> {{
        q = com.microsoft.QuantizeLinear (x, xs, xz)
        y = com.microsoft.DequantizeLinear (q, xs, xz) }}""",
    "no zero points": f"""(float[2,3,4] x) => (float[2,3,4] y) <{U8}> {{
        q = QuantizeLinear (x, xs)
        y = DequantizeLinear (q, xs) }}""",
    "a scale for each channel": """(float[2,3,4] x) => (float[2,3,4] y)
        <float[3] s = {0.1, 0.2, 0.3}, int8[3] z = {1, 2, 3}> {
        q = QuantizeLinear <axis = 1> (x, s, z)
        y = DequantizeLinear <axis = 1> (q, s, z) }""",
}  # fmt: skip


def same_integers(found: np.ndarray, wanted: np.ndarray) -> None:
    """Equal but for units at ties of the rounding."""
    off = np.abs(found.astype(np.int64) - wanted.astype(np.int64))
    assert off.max() <= 1
    assert off.sum() <= max(1, 0.02 * off.size)


@pytest.mark.parametrize("name", MODELS)
def test_a_form_gives_what_onnx_runtime_gives(name: str, run_tvm, run_onnx, rng) -> None:
    model = make(MODELS[name])
    arrays = [draw(value, rng) for value in model.graph.input]
    if name.startswith(
        "QAttention"
    ):  # which is not written out where ONNX Runtime's sums saturate: these do not
        arrays[0] //= 2
    for found, wanted in zip(run_tvm(load(model), *arrays), run_onnx(model, *arrays), strict=True):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        if found.dtype.kind == "f":
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * np.abs(wanted).max())
        else:
            same_integers(found, wanted)


@pytest.mark.parametrize(
    "name", [name for name in MODELS if name.startswith(("Resize", "Pad")) or name == "ops on bytes"]
)
def test_ops_on_bytes_are_floats_in_a_region(name: str) -> None:
    report = Report()
    partition(None, report)(load(make(MODELS[name])))
    # those too small for a call are given back
    assert not [refusal for refusal in report.refusals if refusal.step == "annotate"]


@pytest.mark.parametrize(
    "name",
    ["MatMulInteger of what is quantised as it comes", "ConvInteger to floats", "zero points of columns"],
)
def test_sums_that_become_floats_are_products_of_floats(name: str, count_ops) -> None:
    ops = count_ops(load(make(MODELS[name])))
    assert ops["matmul"] + ops["nn.conv2d"] == 1
    assert not ops["astype"]


@pytest.mark.parametrize(
    "reader", ["y = Identity (sums)", "z2 = Cast <to = 7> (sums) y = Cast <to = 6> (z2)"]
)
def test_sums_that_stay_integers_are_exact(reader: str, run_tvm, run_onnx, rng) -> None:
    # 4096 products of bytes: more than a float32 holds
    model = make(f"""(uint8[2,4096] x, uint8[4096,3] b) => (int32[2,3] y) {{
        sums = MatMulInteger (x, b) {reader} }}""")
    arrays = [np.full((2, 4096), 255, "uint8"), draw(model.graph.input[1], rng) | 1]
    np.testing.assert_array_equal(run_tvm(load(model), *arrays)[0], run_onnx(model, *arrays)[0])


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_what_is_quantised_as_it_comes_may_be_one_number(value: float, run_tvm, run_onnx) -> None:
    model = make(MODELS["MatMulInteger of what is quantised as it comes"])
    x = np.full((4, 6), value, "float32")
    np.testing.assert_allclose(run_tvm(load(model), x)[0], run_onnx(model, x)[0], rtol=1e-5)


def test_a_network_that_is_quantised_as_it_runs_is_one_region() -> None:
    model = make(f"""(float[4,6] x) => (float[4,6] y) <{B}, int8[3,6] c = {{1,-2,3,-4,5,-6,7,-8,9,10,-11,12,
        100,-90,80,1,2,-3}}, float bs = {{0.1}}, int8 bz = {{-2}}> {{
        {dynamic_product("x", "b", "first")}
        h = Relu (first)
        {dynamic_product("h", "c", "second")}
        y = Add (x, second) }}""")
    report = Report()
    partition(None, report)(load(model))
    assert not report.refusals


def dynamic_product(x: str, weight: str, made: str) -> str:
    """What ONNX Runtime's quantize_dynamic writes for a product."""
    return f"""{x}q, {x}s, {x}z = DynamicQuantizeLinear ({x})
        {x}sums = MatMulInteger ({x}q, {weight}, {x}z, bz)
        {x}sumsf = Cast <to = 1> ({x}sums)
        {x}each = Mul ({x}s, bs)
        {made} = Mul ({x}sumsf, {x}each)"""


@pytest.mark.slow
@pytest.mark.parametrize(("directions", "each", "fed"), pairs([1, 2], [True, False], [True, False]))
def test_an_lstm_of_bytes_is_one_of_dequantised_weights(
    directions: int, each: bool, fed: bool, run_tvm, run_onnx, rng
) -> None:
    # DynamicQuantizeLSTM has its weights as [D, I, 4 H], and a scale for each direction, or each column
    model, floats = draw_lstm(directions, each, fed, rng)
    x = rng.standard_normal((5, 2, 6)).astype("float32")
    states = [rng.standard_normal((directions, 2, 4)).astype("float32") for _ in "hc"] if fed else []
    found = run_tvm(load(model), x, *states)
    for got, wanted, rounded in zip(
        found, run_onnx(floats, x, *states), run_onnx(model, x, *states), strict=True
    ):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got, rounded, atol=0.05)


def draw_lstm(
    directions: int, each: bool, fed: bool, rng: np.random.Generator
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A DynamicQuantizeLSTM, and the LSTM of its weights."""
    way = "bidirectional" if directions == 2 else "forward"
    fields = f'direction = "{way}", hidden_size = 4'
    more = f", float[{directions},2,4] h, float[{directions},2,4] c" if fed else ""
    head = f"(float[5,2,6] x{more}) => (float[5,{directions},2,4] y, float[{directions},2,4] last)"
    given = "b, , h, c" if fed else "b, , ,"
    model = make(f"{head} {{ y, last = com.microsoft.DynamicQuantizeLSTM <{fields}> "
                 f"(x, w, r, {given}, , ws, wz, rs, rz) }}")  # fmt: skip
    floats = make(f"{head} {{ y, last = LSTM <{fields}> (x, w, r, {given}) }}")
    bias = onnx.numpy_helper.from_array(rng.standard_normal((directions, 32)).astype("float32"), "b")
    for held in (model, floats):
        held.graph.initializer.append(bias)
    for name, rows in (("w", 6), ("r", 4)):
        weights = rng.integers(-64, 64, (directions, rows, 16)).astype("int8")
        shape = (directions, 16) if each else (directions,)
        scales = rng.uniform(0.005, 0.01, shape).astype("float32")
        zeros = np.zeros(shape, "int8") if each else rng.integers(-9, 9, shape).astype("int8")
        wide = (zeros.reshape(directions, 1, -1), scales.reshape(directions, 1, -1))
        plain = ((weights.astype("float32") - wide[0]) * wide[1]).transpose(0, 2, 1)
        floats.graph.initializer.append(onnx.numpy_helper.from_array(np.ascontiguousarray(plain), name))
        for array, end in ((weights, ""), (scales, "s"), (zeros, "z")):
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name + end))
    return model, floats


SUMMED = {
    # a bias as older quantisers write it: floats, in whole steps of data times weight
    "whole steps": """steps = Div (bias, each) whole = Floor (steps) added = Cast <to = 6> (whole)""",
    "whole steps in front": """steps = Div (bias, each) whole = Round (steps) wide = Cast <to = 6> (whole)
        one = Constant <value_ints = [1, 3]> () added = Reshape (wide, one)""",
    "twin: fractions": "steps = Div (bias, each) added = Cast <to = 6> (steps)",
    "twin: fed": "added = Identity (fed)",
}


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("form", SUMMED)
def test_sums_and_a_bias_that_become_floats_together(
    form: str, turned: bool, count_ops, run_tvm, run_onnx, rng
) -> None:
    operands = "added, sums" if turned else "sums, added"
    model = make(f"""(float[4,6] x, int32[3] fed) => (float[4,3] y)
        <{B}, float[3] bias = {{0.7, -3, 2.5}}, float bs = {{0.1}}, int8 bz = {{-2}}> {{
        xq, xs, xz = DynamicQuantizeLinear (x)
        each = Mul (xs, bs)
        {SUMMED[form]}
        sums = MatMulInteger (xq, b, xz, bz)
        all = Add ({operands})
        allf = Cast <to = 1> (all)
        y = Mul (allf, each) }}""")
    ops = count_ops(load(model))
    assert ops["matmul"] == 1
    assert bool(ops["astype"]) == ("twin" in form)
    arrays = [draw(value, rng) for value in model.graph.input]
    arrays[1] //= 1 << 16
    np.testing.assert_allclose(run_tvm(load(model), *arrays)[0], run_onnx(model, *arrays)[0], rtol=1e-5)


def test_sums_with_a_bias_that_stay_integers_are_exact(run_tvm, run_onnx, rng) -> None:
    model = make("""(uint8[2,4096] x, uint8[4096,3] b, int32[3] c) => (int32[2,3] all, float[2,3] y) {
        sums = MatMulInteger (x, b) all = Add (sums, c) y = Cast <to = 1> (all) }""")
    arrays = [
        np.full((2, 4096), 255, "uint8"),
        draw(model.graph.input[1], rng) | 1,
        np.arange(3, dtype="int32"),
    ]
    np.testing.assert_array_equal(run_tvm(load(model), *arrays)[0], run_onnx(model, *arrays)[0])
