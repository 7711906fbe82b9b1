"""Running sums along any axis, row by row, as ONNX Runtime has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import convoy
from relax.onnx_models import run_onnx


@pytest.mark.parametrize(
    ("shape", "sizes", "axis", "attributes"),
    [
        ((5, 7), ["n", 7], 0, {}),
        ((2, 6, 5), [2, 6, 5], -2, {"exclusive": 1}),
        ((3, 4, 2, 3), ["n", "m", 2, 3], 1, {"reverse": 1}),
        ((3, 4, 2, 3), [3, 4, "n", 3], 2, {"exclusive": 1, "reverse": 1}),
    ],
)
def test_a_row_is_added_to_those_before(
    shape: tuple[int, ...], sizes: list[Any], axis: int, attributes: dict[str, int]
) -> None:
    graph = helper.make_graph(
        [helper.make_node("CumSum", ["x", "axis"], ["y"], **attributes)],
        "sums",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
        [numpy_helper.from_array(np.array(axis), "axis")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
    x = np.random.default_rng(0).integers(-9, 9, shape).astype(np.float32)
    (got,), (want,) = convoy.load(convoy.compile(model)).run([x]), run_onnx(model, x)
    np.testing.assert_array_equal(got, want)
