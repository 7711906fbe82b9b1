"""What differs, found by the library itself, as ONNX Runtime and NumPy find it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import convoy
from relax.onnx_models import run_onnx

OUTPUTS = ["y", "firsts", "kinds", "counts"]


def unique(
    shape: list[Any], outputs: int, kind: int = TensorProto.FLOAT, **attributes: int
) -> onnx.ModelProto:
    rank = len(shape) if "axis" in attributes else 1
    made = [helper.make_tensor_value_info("y", kind, [None] * rank)]
    made += [helper.make_tensor_value_info(name, TensorProto.INT64, [None]) for name in OUTPUTS[1:outputs]]
    node = helper.make_node("Unique", ["x"], OUTPUTS[:outputs], **attributes)
    given = helper.make_tensor_value_info("x", kind, shape)
    return helper.make_model(
        helper.make_graph([node], "unique", [given], made),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("outputs", "shape", "sizes", "attributes"),
    [
        (1, (40,), ["n"], {}),
        (4, (3, 5), [3, 5], {"sorted": 0}),
        (4, (2, 9), ["n", "m"], {"axis": 1}),
        (4, (7, 2, 1), ["n", 2, 1], {"axis": -3, "sorted": 0}),
    ],
)
def test_it_is_that_of_onnx_runtime(
    outputs: int, shape: tuple[int, ...], sizes: list[Any], attributes: dict[str, int]
) -> None:
    model = unique(sizes, outputs, **attributes)
    executable = convoy.compile(model)
    x = np.random.default_rng(1).integers(0, 3, shape).astype(np.float32)
    for got, want in zip(convoy.load(executable).run([x]), run_onnx(model, x), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
def test_nan_is_like_nan_and_the_last() -> None:
    runner = convoy.load(convoy.compile(unique([6], 4)))
    x = np.array([np.nan, 2, np.inf, np.nan, -np.inf, 2], np.float32)
    for got, want in zip(runner.run([x]), np.unique(x, True, True, True), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
def test_a_library_calls_no_function_of_python(tmp_path) -> None:
    library = tmp_path / "unique.so"
    convoy.compile(unique([9], 1, TensorProto.BOOL)).export_library(str(library))
    assert b"relax.run." not in library.read_bytes()
    (y,) = convoy.load(library).run([np.arange(9) > 4])
    assert y.tolist() == [False, True]
