"""Floats cast to whole numbers: what is none or does not fit, against ONNX Runtime."""

from __future__ import annotations

import platform

import numpy as np
import onnx
import pytest
from onnx import helper

import convoy
from relax.onnx_models import run_onnx

BEYOND = [
    *(np.inf, -np.inf, np.nan, 1e10, -1e10, 3e9, -3e9, 2.0**31, -(2.0**31), -(2.0**31) - 0.5, 2147483647.5),
    *(1e19, -1e19, 1.8e19, 2.0**63, -(2.0**63), 9.3e18, -9.3e18, 1e30, -1e30, -5.0, -300.7, 5e9),
]
WITHIN = [0.0, -0.0, 0.9, -0.9, 1.5, 127.9, 255.9, 300.7, 65536.5, 2147483000.0]
WHOLE = ("int32", "int64", "uint64")


def cast_model(source: str, to: str) -> onnx.ModelProto:
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (source, to)]
    graph = helper.make_graph(
        [helper.make_node("Cast", ["x"], ["y"], to=kinds[1])],
        "cast",
        [helper.make_tensor_value_info("x", kinds[0], ["N"])],
        [helper.make_tensor_value_info("y", kinds[1], None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
@pytest.mark.parametrize("to", [*WHOLE, "int8", "uint8", "int16"])
def test_what_does_not_fit(source: str, to: str) -> None:
    """One by one and in loops of vectors; what fits stays as it is."""
    model = cast_model(source, to)
    runner = convoy.load(convoy.compile(model, threads=1))
    machine = platform.machine() in ("x86_64", "AMD64")
    numbers = [*WITHIN, *(BEYOND if machine else [])]
    with np.errstate(over="ignore"):
        x = np.array(numbers, source)
    for given in (x, np.resize(x, 7 * len(x)), *(x[i : i + 1] for i in range(len(x)))):
        np.testing.assert_array_equal(
            runner.run([given])[0], run_onnx(model, given, optimized=False)[0], str(given)
        )
