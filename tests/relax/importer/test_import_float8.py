"""Floats of 8 bits: casts from and to every byte, every half, and what lies between; quantised networks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import convoy
from convoy.onnx import InferenceSession
from convoy.relax.importer import load
from convoy.relax.importer.float8 import FORMATS
from pairs import pairs

TYPES = {name: getattr(TensorProto, name.replace("_", "").upper()) for name in FORMATS}


def cast(source: int, to: int, saturate: int = 1) -> onnx.ModelProto:
    node = helper.make_node("Cast", ["x"], ["y"], to=to, saturate=saturate)
    x, y = (helper.make_tensor_value_info(n, t, [None]) for n, t in (("x", source), ("y", to)))
    return helper.make_model(helper.make_graph([node], "cast", [x], [y]), ir_version=9)


def bytes_of(tensor: object) -> np.ndarray:
    """With one NaN in place of all: which one is up to who casts."""
    array = np.asarray(tensor)
    return np.where(np.isnan(array.astype(np.float32)), np.uint8(255), array.view(np.uint8))


@pytest.mark.parametrize("saturate", [1, 0])
@pytest.mark.parametrize("name", FORMATS)
def test_floats_become_bytes(name: str, saturate: int, run_tvm) -> None:
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.sort(np.arange(256, dtype=np.uint8).view(np.dtype(name)).astype(np.float32))
        ties = (whole[1:] + whole[:-1]) / 2
        wide = halves.astype(np.float32)
    near = np.concatenate([wide, ties, np.nextafter(ties, np.float32(np.inf)), np.nextafter(ties, -ties)])
    for x, source in ((halves, TensorProto.FLOAT16), (near, TensorProto.FLOAT)):
        model = cast(source, TYPES[name], saturate)
        with np.errstate(invalid="ignore", over="ignore"):
            (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_array_equal(bytes_of(run_tvm(load(model), x)[0]), bytes_of(wanted))


@pytest.mark.parametrize("to", ["float16", "float32"])
@pytest.mark.parametrize("name", FORMATS)
def test_bytes_become_floats(name: str, to: str, run_tvm) -> None:
    x = np.arange(256, dtype=np.uint8).view(np.dtype(name))
    model = cast(TYPES[name], helper.np_dtype_to_tensor_dtype(np.dtype(to)))
    with np.errstate(invalid="ignore"):
        wanted = x.astype(to)
    np.testing.assert_array_equal(run_tvm(load(model), x)[0], wanted)


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2fnuz", "bfloat16"])
def test_arrays_of_types_that_numpy_lacks_go_in_and_out(name: str, convoy_command, tmp_path) -> None:
    code = helper.np_dtype_to_tensor_dtype(np.dtype(name))
    nodes = [
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["wide", "wide"], ["twice"]),
        helper.make_node("Cast", ["twice"], ["y"], to=code),
    ]
    ends = [helper.make_tensor_value_info(end, code, [2, 3]) for end in ("x", "y")]
    model, library, file = tmp_path / "net.onnx", tmp_path / "net.so", tmp_path / "x.npy"
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, ir_version=9), model)
    x = np.arange(6).reshape(2, 3).astype(name)
    wanted = (2 * x.astype(np.float32)).astype(name)
    assert convoy_command("compile", model, "-o", library).code == 0
    for found in (convoy.load(library).run([x]), InferenceSession(model).run(None, {"x": x.tolist()})):
        assert found[0].dtype == name
        np.testing.assert_array_equal(found[0], wanted)
    np.save(file, x)
    for given in ((), ("-i", file)):
        result = convoy_command("run", library, *given)
        assert result.code == 0, result.err


def quantised(kind: int, scale: np.ndarray, source: int, saturate: int, **at: int) -> onnx.ModelProto:
    """Bytes of x, and what they stand for."""
    zero = helper.make_tensor("z", kind, scale.shape, np.zeros(scale.size))
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], saturate=saturate, **at),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], **at),
    ]
    x, q, y = (
        helper.make_tensor_value_info(n, t, None if n != "x" else [6, 34])
        for n, t in (("x", source), ("q", kind), ("y", source))
    )
    graph = helper.make_graph(nodes, "net", [x], [q, y], [numpy_helper.from_array(scale, "s"), zero])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize(
    ("form", "name", "saturate"),
    pairs(["one", "each", "blocks", "halves"], ["float8_e4m3fn", "float8_e5m2fnuz"], [1, 0]),
)
def test_quantised_networks_have_floats_of_8_bits(name: str, saturate: int, form: str, run_tvm) -> None:
    random = np.random.default_rng(1)
    count = {"one": (), "each": (34,), "blocks": (6, 9), "halves": ()}[form]
    dtype = np.float16 if form == "halves" else np.float32
    scale = (0.5 + random.random(count)).astype(dtype)
    at = {"axis": 1, "block_size": 4} if form == "blocks" else {}
    model = quantised(TYPES[name], scale, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), saturate, **at)
    x = (random.standard_normal((6, 34)) * 10.0 ** random.integers(-4, 5, (6, 34))).astype(dtype)
    x[0, :3] = np.inf, -np.inf, np.nan
    wide = np.repeat(scale, 4, axis=1)[:, :34] if form == "blocks" else scale
    with np.errstate(invalid="ignore", over="ignore"):
        (whole,) = ReferenceEvaluator(cast(TensorProto.FLOAT, TYPES[name], saturate)).run(
            None, {"x": (x.astype(np.float32) / wide.astype(np.float32)).ravel()}
        )
    whole = np.asarray(whole).reshape(x.shape)
    q, y = run_tvm(load(model), x)
    np.testing.assert_array_equal(bytes_of(q), bytes_of(whole))
    wanted = (whole.astype(np.float32) * wide.astype(np.float32)).astype(dtype)
    np.testing.assert_allclose(
        np.asarray(y, np.float32), wanted.astype(np.float32), rtol=1e-3 if form == "halves" else 1e-6
    )
