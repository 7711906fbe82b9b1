"""The places of what is not zero: found by the library itself, as NumPy and ONNX Runtime find them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax, tirx

import convoy
from convoy.relax.local_functions import bindings_in
from convoy.relax.places import find_places_in_loops
from relax.onnx_models import run_onnx


def places(kind: int, shape: list[int | str]) -> onnx.ModelProto:
    return helper.make_model(
        helper.make_graph(
            [helper.make_node("NonZero", ["x"], ["y"])],
            "places",
            [helper.make_tensor_value_info("x", kind, shape)],
            [helper.make_tensor_value_info("y", TensorProto.INT64, [max(len(shape), 1), None])],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.parametrize(
    ("dtype", "shape", "opened"),
    [
        ("float32", (2, 3, 4), True),
        ("bool", (5, 7), False),
        ("int64", (9,), True),
        ("uint8", (3, 1), False),
        ("float32", (), False),
    ],
)
def test_they_are_listed_in_order(dtype: str, shape: tuple[int, ...], opened: bool) -> None:
    names = [f"n{axis}" for axis in range(len(shape))]
    model = places(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), names if opened else [*shape])
    runner = convoy.load(convoy.compile(model))
    random = np.random.default_rng(0)
    for x in (random.integers(0, 2, shape), np.zeros(shape), np.ones(shape)):
        given = np.asarray(x).astype(dtype)
        if dtype == "float32" and given.size > 3:
            given.flat[:3] = np.nan, -0.0, np.inf
        (got,) = runner.run([given])
        np.testing.assert_array_equal(got, run_onnx(model, given)[0])


def test_a_library_that_finds_them_needs_no_more_of_tvm_than_its_runtime(tmp_path: Path) -> None:
    library = tmp_path / "places.so"
    convoy.compile(places(TensorProto.FLOAT, ["n", 4])).export_library(str(library))
    assert b"relax.run." not in library.read_bytes()
    code = (
        "import sys, numpy\n"
        "from convoy.deploy.runner import Runner\n"
        f"(y,) = Runner({str(library)!r}).run([numpy.eye(3, 4, dtype='float32')])\n"
        "assert y.tolist() == [[0, 1, 2], [0, 1, 2]]\n"
        "assert 'tvm' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_number_of_places_has_one_name() -> None:
    # of two, where a constant told one of them, TVM lost the other: an LED of open length did not compile
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((tirx.Var("n", "int64"), 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            ones = builder.emit(relax.op.ones((8,), "float32"))
            found = [
                builder.match_cast(value, relax.TensorType((axes, tirx.Var("number", "int64")), "int64"))
                for axes, value in ((2, builder.emit(relax.op.nonzero(x))), (1, relax.op.nonzero(ones)))
            ]
            both = builder.emit_output(relax.Tuple(found))
        builder.emit_func_output(both)
    module = find_places_in_loops()(builder.get())
    casts = [b for b in bindings_in(module["main"].body) if isinstance(b, relax.MatchCast)]
    names = {size for b in casts for size in relax.analysis.definable_tir_vars_in_type(b.ty)}
    assert len(names) == 2
