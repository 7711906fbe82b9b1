"""What may come in any order is compared in order."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

from convoy.bench.accuracy import reference_outputs
from convoy.bench.ordered import order_tops

X = np.random.default_rng(0).random((2, 100), np.float32)


def top(attributes: str) -> onnx.ModelProto:
    return parser.parse_model(f"""<ir_version: 8, opset_import: ["" : 17]>
        top (float[2,100] x) => (float[2,k] best, int64[2,k] places) <int64[1] k = {{5}}>
        {{ best, places = TopK {attributes} (x, k) }}""")


@pytest.mark.parametrize("optimised", [True, False])
def test_the_reference_of_any_order_is_in_order(optimised: bool) -> None:
    model = top("<sorted = 0>")
    best, places = reference_outputs(model, {"x": X}, optimised=optimised)
    np.testing.assert_array_equal(best, -np.sort(-X)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(X, places, 1), best)
    assert model.graph.node[0].attribute[0].i == 0  # the model itself stays


def test_a_model_in_order_stays_as_it_is() -> None:
    for attributes in ("", "<sorted = 1>"):
        model = top(attributes)
        assert order_tops(model) is model
