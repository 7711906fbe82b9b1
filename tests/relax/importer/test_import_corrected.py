"""What a node says and TVM's frontend leaves out: seen against the definition, as TVM alone runs it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from convoy.errors import ModelError
from convoy.relax.importer import load


def model_of(node: onnx.NodeProto, inputs: Mapping[str, tuple[int, int]], *kinds: int) -> onnx.ModelProto:
    """One node: the type and length of each input, and the types of its outputs."""
    graph = helper.make_graph(
        [node],
        "network",
        [helper.make_tensor_value_info(n, kind, [length]) for n, (kind, length) in inputs.items()],
        [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(node.output, kinds, strict=True)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("positive", [0, 1])
@pytest.mark.parametrize("negative", [0, 1])
def test_infinities_of_the_signs_that_are_asked_for(run_tvm, positive: int, negative: int) -> None:
    node = helper.make_node("IsInf", ["x"], ["y"], detect_positive=positive, detect_negative=negative)
    model = model_of(node, {"x": (TensorProto.FLOAT, 6)}, TensorProto.BOOL)
    x = np.array([1, np.inf, -np.inf, np.nan, 0, np.inf], np.float32)
    want = np.isposinf(x) & bool(positive) | np.isneginf(x) & bool(negative)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], want)


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("shape", [[], [1], [1, 1]])
def test_what_is_divided_by_the_number_zero_is_infinite(run_tvm, zero: float, shape: list[int]) -> None:
    model = model_of(
        helper.make_node("Div", ["x", "zero"], ["y"]), {"x": (TensorProto.FLOAT, 6)}, TensorProto.FLOAT
    )
    model.graph.initializer.append(numpy_helper.from_array(np.full(shape, zero, np.float32), "zero"))
    x = np.array([1, -2, 0, np.nan, np.inf, -np.inf], np.float32)
    with np.errstate(all="ignore"):
        want = x / np.full(shape, zero, np.float32)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], want)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int32", "int64"])
@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
def test_shifts_by_all_bits_and_more_leave_the_sign(run_tvm, dtype: str, direction: str) -> None:
    info, kind = np.iinfo(dtype), helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    width, signed = info.bits, info.min < 0
    node = helper.make_node("BitShift", ["x", "by"], ["y"], direction=direction)
    model = model_of(node, {"x": (kind, 6), "by": (kind, 6)}, kind)
    x = np.array([1, 3, 200 - 256 * signed, 100, 255 - 256 * signed, 55 - 256 * signed], "int64").astype(
        dtype
    )
    by = np.array([0, 1, 3, width - 1, width, -1 if signed else 255], "int64").astype(dtype)
    places = [int(b) if b >= 0 else 2 * width for b in by]
    bits = [int(a) << b if direction == "LEFT" else int(a) >> b for a, b in zip(x, places, strict=True)]
    want = np.array([n % 2**width for n in bits], f"uint{width}").view(dtype)
    np.testing.assert_array_equal(run_tvm(load(model), x, by)[0], want)


def test_the_mask_of_dropout_keeps_all(run_tvm) -> None:
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    model = model_of(node, {"x": (TensorProto.FLOAT, 6)}, TensorProto.FLOAT, TensorProto.BOOL)
    x = np.arange(6, dtype=np.float32)
    y, mask = run_tvm(load(model), x)
    np.testing.assert_array_equal(y, x)
    assert mask.dtype == bool
    assert mask.all()


@pytest.mark.parametrize(("opset", "kind"), [(7, "float16"), (9, "float"), (10, "bool"), (11, "bool")])
def test_the_mask_of_an_older_dropout_is_zeros(opset: int, kind: str, run_tvm, run_onnx) -> None:
    data = kind if kind != "bool" else "float"
    model = onnx.parser.parse_model(f"""<ir_version: 4, opset_import: ["": {opset}]> g
        ({data}[2,3] x) => ({data}[2,3] y, {kind}[2,3] mask) {{ y, mask = Dropout <ratio = 0.3> (x) }}""")
    x = np.arange(6).reshape(2, 3).astype("float16" if data == "float16" else "float32")
    for found, wanted in zip(run_tvm(load(model), x), run_onnx(model, x), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("ratio", "training", "found"),
    [
        ("0.0", "1", ""),
        ("0.5", "0", ""),
        ("0.5", "1", "got True"),
        ("", "1", "got True"),
    ],
)
def test_a_dropout_that_drops_is_refused(ratio: str, training: str, found: str, run_tvm) -> None:
    constants = [f"float ratio = {{{ratio}}}"] * bool(ratio) + [f"bool t = {{{training}}}"]
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g
        (float[6] x) => (float[6] y) <{", ".join(constants)}> {{
            y = Dropout ({"x, ratio, t" if ratio else "x, , t"}) }}""")
    if found:
        with pytest.raises(ModelError, match=rf"Dropout y: expected training_mode .*{found}"):
            load(model)
        return
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], x)


def test_a_dropout_of_which_a_call_says_that_it_drops_ends_the_call(run_tvm) -> None:
    model = load(
        onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> g
        (float[6] x, float ratio, bool t) => (float[6] y) { y = Dropout (x, ratio, t) }""")
    )
    x = np.arange(6, dtype=np.float32)
    for ratio, training in (0.0, True), (0.5, False):
        got = run_tvm(model, x, np.float32(ratio).reshape(()), np.array(training))
        np.testing.assert_array_equal(got[0], x)
    with pytest.raises(RuntimeError, match="match_cast"):
        run_tvm(model, x, np.float32(0.3).reshape(()), np.array(True))


@pytest.mark.parametrize("data", ["float32", "float64"])
@pytest.mark.parametrize("grid", ["float16", "float32", "float64"])
def test_floats_sampled_at_places_of_another_type_keep_their_own(run_tvm, data: str, grid: str) -> None:
    sizes = {"x": (data, [1, 2, 4, 5]), "grid": (grid, [1, 3, 2, 2])}
    given = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind)), size)
        for name, (kind, size) in sizes.items()
    ]
    made = helper.make_tensor_value_info("y", given[0].type.tensor_type.elem_type, None)
    node = helper.make_node("GridSample", ["x", "grid"], ["y"], mode="linear", align_corners=1)
    graph = helper.make_graph([node], "network", given, [made])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 4, 5)).astype(data)
    places = rng.uniform(-1, 1, (1, 3, 2, 2)).astype(grid)
    (found,) = run_tvm(load(model), x, places)
    assert found.dtype == data
    wide = ReferenceEvaluator(model).run(None, {"x": x, "grid": places.astype("float64")})[0]
    np.testing.assert_allclose(found, wide, rtol=0, atol=1e-6)


@pytest.mark.parametrize("said", [(), ("mean", "inverse")])
def test_a_layer_norm_of_float64(run_tvm, said: tuple[str, ...]) -> None:
    """TVM has no kernel for it; what is said beside stays float32."""
    node = helper.make_node("LayerNormalization", ["x", "gamma", "beta"], ["y", *said], epsilon=2**-10)
    kinds = [TensorProto.DOUBLE, *[TensorProto.FLOAT] * len(said)]
    model = model_of(node, dict.fromkeys(["x", "gamma", "beta"], (TensorProto.DOUBLE, 6)), *kinds)
    x, gamma, beta = np.random.default_rng(0).standard_normal((3, 6))
    found = run_tvm(load(model), x, gamma, beta)
    inverse = 1 / np.sqrt(x.var(keepdims=True) + 2**-10)
    want = [(x - x.mean()) * inverse * gamma + beta, x.mean(keepdims=True), inverse]
    for tensor, expected, dtype in zip(found, want, ["float64", "float32", "float32"], strict=False):
        assert tensor.dtype == dtype
        np.testing.assert_allclose(tensor, expected, rtol=1e-6 if dtype == "float32" else 1e-12)
    assert len(found) == 1 + len(said)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_what_is_not_above_a_threshold_is_zero(dtype, run_tvm) -> None:
    """The frontend multiplied by 0, which left NaN of infinities, and refused all but float32."""
    x = np.array([1.5, -2, 0.5, 0.25, np.nan, np.inf, -np.inf], dtype)
    node = helper.make_node("ThresholdedRelu", ["x"], ["y"], alpha=0.5)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    (got,) = run_tvm(load(model_of(node, {"x": (kind, 7)}, kind)), x)
    np.testing.assert_array_equal(got, np.where(x > 0.5, x, np.zeros_like(x)))
