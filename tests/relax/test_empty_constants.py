"""Constants without elements, in libraries on disk, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper

import convoy
from convoy.relax.empty import make_empty
from convoy.relax.importer import load
from relax.onnx_models import run_onnx

NODES = {
    "added": ["y = Add (x, e)"],
    "expanded": ["s = Shape (x)", "t = Concat <axis = 0> (s, zero)", "y = Expand (e, t)"],
    "chosen": ["c = Cast <to = 9> (x)", "y = Where (c, e, x)"],
    "joined with itself": [
        "w = Concat <axis = 0> (x, x)",
        "f = Concat <axis = 1> (e, e)",
        "y = Mul (w, f)",
    ],
    "given": ["y = Identity (e)", "z = Neg (x)"],
    "gathered from": ["i = Cast <to = 7> (x)", "y = Gather (e, i)"],
    "in a chain": ["a = Add (x, e)", "b = Mul (a, a)", "y = Sub (b, x)"],
    "in a branch": [
        "s = ReduceMax <keepdims = 0> (x)",
        "c = Cast <to = 9> (s)",
        "y = If (c) <then_branch = t () => (T u) { u = Add (x, e) }, "
        "else_branch = f () => (T v) { v = Sub (x, e) }>",
    ],
}
TYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")


def network(form: str, dtype: str, elements: int = 0) -> onnx.ModelProto:
    """A node that reads the constant e of shape [1, elements] beside an open input x of one column."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    written = {"float32": "float", "float64": "double", "float16": "float16"}.get(dtype, dtype)
    nodes = " ".join(NODES[form]).replace("(T u)", f"({written} u)").replace("(T v)", f"({written} v)")
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> net ({written}[N, 1] x) => ({written} y) {{ {nodes} }}'
    )
    made = {name for node in model.graph.node for name in node.output}
    if "z" in made:
        model.graph.output.append(helper.make_tensor_value_info("z", kind, None))
    held = {"e": np.ones((1, elements), dtype), "zero": np.array([elements])}
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in held.items())
    return model


def of_library(model: onnx.ModelProto, x: np.ndarray, folder: Path) -> list[np.ndarray]:
    path = folder / "net.so"
    convoy.compile(model, threads=1).export_library(path)
    return convoy.load(path).run([x])


@pytest.mark.parametrize("form", NODES)
def test_a_constant_without_elements(form: str, tmp_path: Path) -> None:
    model, x = network(form, "float32"), np.zeros((3, 1), "float32")
    for found, wanted in zip(
        of_library(model, x, tmp_path), run_onnx(model, x, optimized=False), strict=True
    ):
        assert found.shape == wanted.shape
        assert found.dtype == wanted.dtype


@pytest.mark.parametrize("dtype", TYPES)
def test_of_every_type(dtype: str, tmp_path: Path) -> None:
    """Expanded, which each type can be."""
    found = of_library(network("expanded", dtype), np.zeros((3, 1), dtype), tmp_path)[0]
    assert found.shape == (3, 1, 0)
    assert found.dtype == dtype


@pytest.mark.parametrize("form", NODES)
def test_others_stay_as_they_are(form: str) -> None:
    made = load(network(form, "float32", elements=2 if form == "joined with itself" else 1))
    tvm.ir.assert_structural_equal(make_empty()(made), made)
