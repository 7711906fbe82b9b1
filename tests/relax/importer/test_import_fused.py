"""Ops that ONNX Runtime's optimisers write are written out: each against ONNX Runtime, in several forms."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from tvm import relax

import convoy
from convoy.errors import ModelError
from convoy.relax.dataflow import is_constant, read_array
from convoy.relax.importer import load


def make(text: str, opset: int = 17) -> onnx.ModelProto:
    """A model whose ops without a domain are ONNX's; ``ms.`` stands for ONNX Runtime's."""
    imports = f'"": {opset}, "com.microsoft": 1'
    text = text.replace("ms.", "com.microsoft.")
    return onnx.parser.parse_model(f"<ir_version: 8, opset_import: [{imports}]> g {text}")


def draw(value: onnx.ValueInfoProto, rng: np.random.Generator) -> np.ndarray:
    """Normal numbers; of integers: a mask of ones before zeros, bytes of any value, indices below 5."""
    kind = value.type.tensor_type
    shape = [dim.dim_value if dim.HasField("dim_value") else 3 for dim in kind.shape.dim]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    if dtype.kind == "f":
        return rng.standard_normal(shape).astype(dtype)
    if value.name.startswith("mask"):
        last = shape[-1]
        counts = rng.integers(1, last + 1, [*shape[:-1], 1])
        return (np.arange(last) < counts).astype(dtype) if len(shape) > 1 else counts_of(shape, dtype)
    return rng.integers(0, 256 if dtype.itemsize == 1 else 5, shape).astype(dtype)


def counts_of(shape: list[int], dtype: np.dtype) -> np.ndarray:
    """How many columns of each image count."""
    return (1 + np.arange(shape[0]) % 4).astype(dtype)


HEADS = "float[2,4,24] x, float[24,48] w, float[48] b"
QKV = "float[2,4,12] q, float[2,5,12] k, float[2,5,12] v"
ROTARY = "int64[2,4] at, float[9,3] c, float[9,3] s"
FORMS = {
    **{
        f"FusedConv {op}": f"""(float[1,3,8,8] x, float[4,3,3,3] w, float[4] b) => (float[1,4,m,n] y) {{
            y = ms.FusedConv <activation = "{op}", strides = [2, 1], pads = [1, 0, 1, 2]{more}> (x, w,
        b) }}"""
        for op, more in (
            ("Relu", ""), ("Tanh", ""), ("Sigmoid", ""), ("LeakyRelu", ", activation_params = [0.2]"),
            ("HardSigmoid", ", activation_params = [0.3, 0.4]"),
            ("Clip", ", activation_params = [-0.5, 1.0]"),
        )
    },
    "FusedConv without a bias": """(float[1,4,8,8] x, float[4,1,3,3] w) => (float[1,4,6,6] y) {
        y = ms.FusedConv <activation = "Relu", group = 4> (x, w) }""",
    "FusedConv of a residual": """(float[1,3,8,8] x, float[4,3,1,1] w, float[4] b, float[1,4,8,8] z) =>
        (float[1,4,8,8] y) { y = ms.FusedConv <activation = "Relu"> (x, w, b, z) }""",
    **{
        f"FusedGemm {op}": f"""(float[3,4] a, float[5,4] b, float[5] c) => (float[3,5] y) {{
            y = ms.FusedGemm <activation = "{op}", transB = 1, alpha = 0.5{more}> (a, b, c) }}"""
        for op, more in (("Relu", ""), ("LeakyRelu", ", activation_alpha = 0.3"), ("Tanh", ""))
    },
    "FusedMatMul": """(float[2,3,5,4] a, float[2,3,6,4] b) => (float[2,3,5,6] y) {
        y = ms.FusedMatMul <alpha = 0.25, transB = 1> (a, b) }""",
    "FusedMatMul of a transposed": """(float[4,5] a, float[2,4,6] b) => (float[2,5,6] y) {
        y = ms.FusedMatMul <transA = 1> (a, b) }""",
    "FusedMatMul, rows in front": """(float[5,2,3,4] a, float[4,2,3,6] b) => (float[2,3,5,6] y) {
        y = ms.FusedMatMul <transBatchA = 1, transBatchB = 1> (a, b) }""",
    "FusedMatMul, columns in front": """(float[4,2,3,5] a, float[6,2,3,4] b) => (float[2,3,5,6] y) {
        y = ms.FusedMatMul <transBatchA = 1, transBatchB = 1, transA = 1, transB = 1> (a, b) }""",
    "TransposeMatMul": """(float[4,5] a, float[4,6] b) =>
        (float[5,6] y) { y = ms.TransposeMatMul <transA = 1> (a, b) }""",
    "QuickGelu": "(float[3,4] x) => (float[3,4] y) { y = ms.QuickGelu <alpha = 1.0> (x) }",
    "QuickGelu by default": "(float[3,4] x) => (float[3,4] y) { y = ms.QuickGelu (x) }",
    "BiasGelu": "(float[3,4] x, float[4] b) => (float[3,4] y) { y = ms.BiasGelu (x, b) }",
    "FastGelu": "(float[3,4] x, float[4] b) => (float[3,4] y) { y = ms.FastGelu (x, b) }",
    "SimplifiedLayerNormalization": """(float[2,3,8] x, float[8] s) => (float[2,3,8] y) {
        y = SimplifiedLayerNormalization <axis = -1, epsilon = 0.01> (x, s) }""",
    "SimplifiedLayerNormalization by default": """(float[2,3,8] x, float[8] s) => (float[2,3,8] y)
        <float k = {0.001}> { z = Mul (x, k) y = SimplifiedLayerNormalization (z, s) }""",
    "SkipLayerNormalization by default": """(float[2,3,8] x, float[8] s) => (float[2,3,8] y)
        <float k = {0.001}> { z = Mul (x, k) y = ms.SkipLayerNormalization (z, z, s) }""",
    "SkipSimplifiedLayerNormalization by default": """(float[2,3,8] x, float[8] s) => (float[2,3,8] y)
        <float k = {0.001}> { z = Mul (x, k) y = ms.SkipSimplifiedLayerNormalization (z, z, s) }""",
    "SkipSimplifiedLayerNormalization": """(float[2,3,8] x, float[2,3,8] k, float[8] s) =>
        (float[2,3,8] y, float[2,3,8] t)
        { y, , , t = ms.SkipSimplifiedLayerNormalization <epsilon = 0.01> (x, k, s) }""",
    "SimplifiedLayerNormalization and 1 / root": """(float[2,3,8] x, float[8] s) =>
        (float[2,3,8] y, float[2,3,1] v) { y, v = SimplifiedLayerNormalization (x, s) }""",
    "SimplifiedLayerNormalization of two axes": """(float[2,3,8] x, float[3,8] s) =>
        (float[2,3,8] y, float[2,1,1] v) { y, v = SimplifiedLayerNormalization <axis = 1> (x, s) }""",
    "SimplifiedLayerNormalization of all axes but one": """(float[2,3,8] x, float[3,8] s) =>
        (float[2,3,8] y) { y = SimplifiedLayerNormalization <axis = -2> (x, s) }""",
    "LayerNormalization, mean and 1 / deviation": """(float[2,3,8] x, float[8] s, float[8] b) =>
        (float[2,3,8] y, float[2,3,1] m, float[2,3,1] v) { y, m, v = LayerNormalization (x, s, b) }""",
    "SkipLayerNormalization, all outputs": """(float[2,3,8] x, float[2,3,8] k, float[8] s, float[8] h,
        float[8] b) => (float[2,3,8] y, float[2,3,1] m, float[2,3,1] v, float[2,3,8] t) {
        y, m, v, t = ms.SkipLayerNormalization (x, k, s, h, b) }""",
    "SkipLayerNormalization, its mean": """(float[2,3,8] x, float[2,3,8] k, float[8] s) =>
        (float[2,3,8] y, float[2,3,1] m) { y, m = ms.SkipLayerNormalization (x, k, s) }""",
    "SkipSimplifiedLayerNormalization, all outputs": """(float[2,3,8] x, float[2,3,8] k, float[8] s,
        float[8] b) => (float[2,3,8] y, float[2,3,1] v, float[2,3,8] t) {
        y, , v, t = ms.SkipSimplifiedLayerNormalization (x, k, s, b) }""",
    "SkipLayerNormalization": """(float[2,3,8] x, float[2,3,8] k, float[8] s) => (float[2,3,8] y) {
        y = ms.SkipLayerNormalization <epsilon = 0.01> (x, k, s) }""",
    "SkipLayerNormalization of all": """(float[2,3,8] x, float[2,3,8] k, float[8] s, float[8] h,
        float[8] b) =>
        (float[2,3,8] y, float[2,3,8] t) { y, , , t = ms.SkipLayerNormalization (x, k, s, h, b) }""",
    "EmbedLayerNormalization": """(int32[2,4] ids, int32[2,4] seg, float[5,8] we, float[7,8] pe,
        float[5,8] se,
        float[8] s, float[8] h, int32[2,4] mask) => (float[2,4,8] y, int32[2] n) {
        y, n = ms.EmbedLayerNormalization (ids, seg, we, pe, se, s, h, mask) }""",
    "EmbedLayerNormalization of places": """(int32[2,4] ids, float[5,8] we, float[7,8] pe, float[8] s,
        float[8] h,
        int32[2,4] places) => (float[2,4,8] y) {
        y, n = ms.EmbedLayerNormalization (ids, , we, pe, , s, h, , places) }""",
    "Attention": f"({HEADS}) => (float[2,4,16] y) {{ y = ms.Attention <num_heads = 4> (x, w, b) }}",
    **{
        f"Attention, mask of {form}": f"""({HEADS}, int32[{form}] mask) => (float[2,4,16] y) {{
            y = ms.Attention <num_heads = 2> (x, w, b, mask) }}"""
        for form in ("2", "2,4", "2,4,4")
    },
    "Attention, mask of ends and begins": f"""({HEADS}) => (float[2,4,16] y)
        <int32[4] mask = {{4, 3, 1, 2}}> {{ y = ms.Attention <num_heads = 2> (x, w, b, mask) }}""",
    "Attention, mask of an image without columns": f"""({HEADS}) => (float[2,4,16] y)
        <int32[4] mask = {{4, 2, 1, 9}}> {{ y = ms.Attention <num_heads = 2> (x, w, b, mask) }}""",
    "Attention, mask of lengths and places": f"""({HEADS}) => (float[2,4,16] y)
        <int32[8] mask = {{3, 2, 0, 3, 5, 0, 3, 5}}> {{
        y = ms.Attention <num_heads = 2> (x, w, b, mask) }}""",
    "Attention, causal": f"""({HEADS}) => (float[2,4,16] y) {{
        y = ms.Attention <num_heads = 4, unidirectional = 1> (x, w, b) }}""",
    "Attention, added, of a scale": f"""({HEADS}, float[2,4,4,4] a) => (float[2,4,16] y) {{
        y = ms.Attention <num_heads = 4, scale = 0.3> (x, w, b, , , a) }}""",
    "Attention, sizes of q, k and v": """(float[2,4,24] x, float[24,40] w, float[40] b) =>
        (float[2,4,8] y) {
        y = ms.Attention <num_heads = 2, qkv_hidden_sizes = [16, 16, 8]> (x, w, b) }""",
    "Attention, past": f"""({HEADS}, float[2,2,4,3,4] p) => (float[2,4,16] y, float[2,2,4,7,4] present) {{
        y, present = ms.Attention <num_heads = 4, unidirectional = 1> (x, w, b, , p) }}""",
    "MultiHeadAttention": f"""({QKV}) =>
        (float[2,4,12] y) {{ y = ms.MultiHeadAttention <num_heads = 3> (q, k, v) }}""",
    "MultiHeadAttention of a bias and a mask": f"""({QKV}, float[36] b, int32[2,5] mask) =>
        (float[2,4,12] y) {{
        y = ms.MultiHeadAttention <num_heads = 3> (q, k, v, b, mask) }}""",
    "MultiHeadAttention, added": f"""({QKV}, float[1,3,4,5] a) => (float[2,4,12] y) {{
        y = ms.MultiHeadAttention <num_heads = 3, scale = 0.7> (q, k, v, , , a) }}""",
    "MultiHeadAttention of heads": """(float[2,4,12] q, float[2,3,5,4] k, float[2,3,5,4] v) =>
        (float[2,4,12] y) {
        y = ms.MultiHeadAttention <num_heads = 3> (q, k, v) }""",
    "MultiHeadAttention, past": f"""({QKV.replace('2,5', '2,4')}, float[2,3,6,4] pk, float[2,3,6,4] pv) =>
        (float[2,4,12] y, float[2,3,10,4] nk, float[2,3,10,4] nv) {{
        y, nk, nv = ms.MultiHeadAttention <num_heads = 3, unidirectional = 1> (q, k, v, , , , pk, pv) }}""",
    "RotaryEmbedding": f"""(float[2,4,12] x, {ROTARY}) =>
        (float[2,4,12] y) {{ y = ms.RotaryEmbedding (x, at, c, s) }}""",
    "RotaryEmbedding with a scale": f"""(float[2,4,12] x, {ROTARY}) =>
        (float[2,4,12] y) {{ y = ms.RotaryEmbedding <scale = 0.5> (x, at, c, s) }}""",
    "RotaryEmbedding, interleaved": f"""(float[2,4,12] x, {ROTARY}) => (float[2,4,12] y) {{
        y = ms.RotaryEmbedding <interleaved = 1> (x, at, c, s) }}""",
    "RotaryEmbedding of heads": f"""(float[2,3,4,6] x, {ROTARY}) => (float[2,3,4,6] y) {{
        y = ms.RotaryEmbedding (x, at, c, s) }}""",
    "RotaryEmbedding of heads, interleaved": f"""(float[2,3,4,6] x, {ROTARY}) => (float[2,3,4,6] y) {{
        y = ms.RotaryEmbedding <interleaved = 1> (x, at, c, s) }}""",
    "RotaryEmbedding of a part": f"""(float[2,4,16] x, {ROTARY}) => (float[2,4,16] y) {{
        y = ms.RotaryEmbedding <rotary_embedding_dim = 6, num_heads = 2> (x, at, c, s) }}""",
    "RotaryEmbedding from a row on": f"""(float[2,4,12] x, {ROTARY.replace('2,4', '1')}) =>
        (float[2,4,12] y) {{
        y = ms.RotaryEmbedding (x, at, c, s) }}""",
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_form_gives_what_onnx_runtime_gives(name: str, run_tvm, run_onnx, rng) -> None:
    model = make(FORMS[name])
    arrays = [draw(value, rng) for value in model.graph.input]
    for found, wanted in zip(run_tvm(load(model), *arrays), run_onnx(model, *arrays), strict=True):
        assert found.dtype == wanted.dtype
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def of_blocks(op: str, bits: int, zeros: str, rng: np.random.Generator) -> onnx.ModelProto:
    """A product with, or rows of, a weight of 6 rows and 40 or 48 columns in blocks of 16."""
    columns, more = (40, "") if op == "MatMulNBits" else (48, "")
    packed = 16 * bits // 8
    weight = rng.integers(0, 256, (6, 3, packed) if op == "MatMulNBits" else (6, 3 * packed), np.uint8)
    constants = {"w": weight, "s": rng.random((6, 3) if op != "MatMulNBits" else 18, np.float32)}
    if zeros:
        each = 8 // bits
        count = 6 * -(-3 // each)
        constants["z"] = (
            rng.integers(0, 256, count, np.uint8) if zeros == "packed" else rng.random(18, np.float32) * 9
        )
        if op != "MatMulNBits":
            constants["z"] = constants["z"].reshape(6, -1)
        more = ", z"
    if op == "MatMulNBits":
        call = f"ms.MatMulNBits <K = {columns}, N = 6, bits = {bits}, block_size = 16> (x, w, s{more})"
        text = f"(float[2,3,{columns}] x) => (float[2,3,6] y) {{ y = {call} }}"
    else:
        call = f"ms.GatherBlockQuantized <bits = {bits}, block_size = 16> (w, i, s{more})"
        text = f"(int64[2,3] i) => (float[2,3,{columns}] y) {{ y = {call} }}"
    model = make(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in constants.items())
    return model


@pytest.mark.parametrize(
    ("op", "bits", "zeros"),
    [
        *(("MatMulNBits", *form) for form in ((2, ""), (4, ""), (4, "packed"), (4, "floats"))),
        *((op, 8, "") for op in ("MatMulNBits", "GatherBlockQuantized")),
        ("MatMulNBits", 8, "packed"),
        ("GatherBlockQuantized", 4, ""),
    ],
)
def test_weights_of_few_bits(op: str, bits: int, zeros: str, run_tvm, run_onnx, rng) -> None:
    model = of_blocks(op, bits, zeros, rng)
    arrays = [draw(value, rng) for value in model.graph.input]
    (found,), (wanted,) = run_tvm(load(model), *arrays), run_onnx(model, *arrays)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


def find_constants(module: tvm.IRModule) -> list[np.ndarray]:
    found: list[np.ndarray] = []

    def visit(expr: relax.Expr) -> None:
        if is_constant(expr):
            found.append(read_array(expr))

    relax.analysis.post_order_visit(module["main"], visit)
    return found


@pytest.mark.parametrize("zeros", ["", "packed"])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_table_of_bytes_stays_as_small_as_it_is(bits: int, zeros: str, run_tvm, run_onnx, rng) -> None:
    model = of_blocks("GatherBlockQuantized", bits, zeros, rng)
    module, places = load(model), np.array([[5, -6, 0], [3, -1, 3]])
    np.testing.assert_allclose(run_tvm(module, places)[0], run_onnx(model, places)[0], atol=1e-5)
    constants = [c for c in find_constants(module) if c.ndim > 1]
    assert max(c.nbytes for c in constants) == max(6 * 48 * bits // 8, 6 * 3 * 4)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize(("gathered", "quantised"), [(0, 1), (1, 0), (-2, -1)])
@pytest.mark.parametrize("kind", ["INT4", "UINT4"])
def test_a_table_of_four_bits_along_any_axes(
    kind: str, gathered: int, quantised: int, zeros: bool, run_tvm, run_onnx, rng
) -> None:
    along = f"gather_axis = {gathered}, quantize_axis = {quantised}, block_size = 16"
    blocks = [size // 16 if i == quantised % 2 else size for i, size in enumerate([32, 64])]
    model = make(f"""(int64[2,3] i) => (float[N,M,K] y) {{
        y = ms.GatherBlockQuantized <{along}> (w, i, s{", z" if zeros else ""}) }}""")
    model.opset_import[0].version, model.ir_version = 21, 10
    least = -8 if kind == "INT4" else 0
    for name, sizes in {"w": [32, 64], **({"z": blocks} if zeros else {})}.items():
        numbers = rng.integers(least, least + 16, sizes).ravel()
        dtype = getattr(onnx.TensorProto, kind)
        model.graph.initializer.append(onnx.helper.make_tensor(name, dtype, sizes, numbers))
    model.graph.initializer.append(onnx.numpy_helper.from_array(rng.random(blocks, np.float32), "s"))
    arrays = [rng.integers(0, 32, (2, 3))]
    (found,), (wanted,) = run_tvm(load(model), *arrays), run_onnx(model, *arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_mask_counts_what_is_1(run_tvm, run_onnx, rng) -> None:
    model = make(FORMS["EmbedLayerNormalization"])
    arrays = [draw(value, rng) for value in model.graph.input]
    arrays[-1] = np.int32([[1, 2, 1, 0], [-1, 255, 3, 1]])
    counts = [run(source, *arrays)[1] for run, source in ((run_tvm, load(model)), (run_onnx, model))]
    np.testing.assert_array_equal(*counts)
    assert [*counts[0]] == [2, 1]


@pytest.mark.parametrize("opset", [11, 12, 13, 17, 18, 20])
@pytest.mark.parametrize(
    "name", ["EmbedLayerNormalization", "Attention, mask of 2,4", "SkipSimplifiedLayerNormalization"]
)
def test_a_body_is_of_the_models_opset(name: str, opset: int, run_tvm, run_onnx, rng) -> None:
    model = make(FORMS[name], opset)
    arrays = [draw(value, rng) for value in model.graph.input]
    for found, wanted in zip(run_tvm(load(model), *arrays), run_onnx(model, *arrays), strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
def test_half_precision_before_layer_norms_were_onnxs(run_tvm, run_onnx, rng) -> None:
    # as the optimiser for transformers leaves a network in float16, of opset 14; the twin is in float32
    text = """(float[2,4,24] x, int32[2,4] mask) => (float[2,4,24] y)
        <float[24] g, float[24] h, float[24,72] w, float[72] b> {
        n = LayerNormalization <axis = -1> (x, g, h)
        a = ms.Attention <num_heads = 4> (n, w, b, mask)
        s, , , t = ms.SkipLayerNormalization (a, n, g, h)
        u = ms.BiasGelu (s, g) v = ms.FastGelu (u, h) q = ms.QuickGelu (v)
        r = SimplifiedLayerNormalization <axis = -1, epsilon = 1e-5> (q, g) y = Add (r, t) }"""
    constants = {"g": (24,), "h": (24,), "w": (24, 72), "b": (72,)}
    single, half = make(text, 14), make(text.replace("float[", "float16["), 14)
    for name, shape in constants.items():
        array = rng.standard_normal(shape).astype("float16") / 4
        half.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        single.graph.initializer.append(onnx.numpy_helper.from_array(array.astype("float32"), name))
    x, mask = rng.standard_normal((2, 4, 24)).astype("float16"), np.int32([[1, 1, 1, 0], [1, 1, 1, 1]])
    (wanted,) = run_onnx(single, x.astype("float32"), mask)
    (found,) = run_tvm(load(half), x, mask)
    assert found.dtype == "float16"
    np.testing.assert_allclose(found, wanted, atol=2e-3 * np.abs(wanted).max())
    (found,) = run_tvm(load(single), x.astype("float32"), mask)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.slow
@pytest.mark.parametrize("level", ["EXTENDED", "BASIC"])
def test_a_file_that_onnx_runtime_saved(level: str, tmp_path: Path, run_onnx, rng) -> None:
    # attention, a norm of a sum, convolutions: as many regions as before it was optimised
    text = """(float[n,3,16,16] x) => (float[n,64,8] y)
        <float[8,3,2,2] k, float[8] kb, float[8] g, float[8] h, float[8,8] wq, float[8,8] wk,
        float[8,8] wv> {
        c = Conv <strides = [2, 2]> (x, k, kb) r = Relu (c) to = Constant <value_ints = [0, 8, 64]> ()
        f = Reshape (r, to) t = Transpose <perm = [0, 2, 1]> (f) q = MatMul (t, wq) kk = MatMul (t, wk)
        kt = Transpose <perm = [0, 2, 1]> (kk) v = MatMul (t, wv) p = MatMul (q, kt)
        d = Constant <value_float = 0.35> () s = Mul (p, d) m = Softmax <axis = -1> (s) a = MatMul (m, v)
        sum = Add (a, t) e = LayerNormalization <axis = -1> (sum, g, h) sg = Sigmoid (e) y = Mul (e,
        sg) }"""
    model = make(text)
    shapes = {"k": (8, 3, 2, 2), "kb": 8, "g": 8, "h": 8, "wq": (8, 8), "wk": (8, 8), "wv": (8, 8)}
    arrays = {name: rng.standard_normal(shape).astype("float32") / 3 for name, shape in shapes.items()}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
    options.optimized_model_filepath = str(tmp_path / "saved.onnx")
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    saved = onnx.load(options.optimized_model_filepath)
    written = {node.op_type for node in saved.graph.node if node.domain == "com.microsoft"}
    assert (written >= {"FusedConv", "FusedMatMul", "QuickGelu"}) == (level == "EXTENDED")
    reports = convoy.Report(), convoy.Report()
    convoy.compile(model, threads=1, report=reports[0])
    executable = convoy.compile(saved, threads=1, report=reports[1])
    assert [len(report.regions) for report in reports] == [1, 1]
    x = rng.standard_normal((2, 3, 16, 16)).astype("float32")
    (found,), (wanted,) = convoy.Runner(executable).run([x]), run_onnx(model, x)
    np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "call",
    [
        'ms.FusedConv <activation = "Nothing"> (x, w)',
        "ms.Attention <num_heads = 0> (x, w)",
        "ms.Attention <num_heads = 2, qkv_hidden_sizes = [2, 2, 8]> (x, w)",
        'ms.FusedConv <activation = "Relu"> (x)',
        "SimplifiedLayerNormalization (x)",
        "SimplifiedLayerNormalization <axis = 3> (x, w)",
        "ms.Attention <num_heads = 2> (x, w, , five)",
        "ms.SkipLayerNormalization (x)",
        'ms.FusedMatMul <alpha = 1.0, activation = "x\\"y"> (x, w)',
        "ms.MatMulNBits <K = 8, N = 8, bits = 3, block_size = 16> (x, w, w)",
    ],
)
def test_a_form_without_a_body_is_refused_by_name(call: str) -> None:
    model = make(f"""(float[2,8,8] x, float[8,8] w, int32[5] five) =>
        (float[a,b,c] y) {{ y = {call} }}""")
    op = call.removeprefix("ms.").partition(" ")[0]
    with pytest.raises(ModelError, match=op):
        load(model)


def test_a_file_that_onnx_runtime_saved_for_one_machine_is_refused() -> None:
    model = make("(float[1,8,4,4] x, float[8,8,1,1] w) => (float[1,8,4,4] y) { y = nchwc.Conv (x, w) }")
    model.graph.node[0].domain = "com.microsoft.nchwc"
    model.opset_import.add(domain="com.microsoft.nchwc", version=1)
    with pytest.raises(ModelError, match="save it with ORT_ENABLE_EXTENDED, or take the model it was"):
        load(model)


@pytest.mark.slow
def test_attention_that_begins_with_nothing_in_its_cache(run_onnx, rng) -> None:
    # keys and values before lie in one tensor, of which each is cut
    model = make("""(float[n,rows,24] x, float[2,n,4,before,6] past) =>
        (float[n,rows,24] y, float[2,n,4,all,6] now) {
        y, now = ms.Attention <num_heads = 4, unidirectional = 1> (x, w, b, , past) }""")
    for name, shape in {"w": (24, 72), "b": (72,)}.items():
        array = rng.standard_normal(shape).astype("float32") / 4
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    executable = convoy.compile(model, threads=1)
    assert len(executable.report.regions) == 1
    runner = convoy.Runner(executable)
    for rows, before in ((5, 0), (1, 5), (2, 3), (1, 0)):
        x = rng.standard_normal((2, rows, 24)).astype("float32")
        past = rng.standard_normal((2, 2, 4, before, 6)).astype("float32")
        for found, wanted in zip(runner.run([x, past]), run_onnx(model, x, past), strict=True):
            np.testing.assert_allclose(found, wanted, atol=1e-5 * np.abs(wanted).max())
