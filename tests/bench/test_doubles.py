"""A network in float64, by ONNX's own evaluator where ONNX Runtime has no kernels."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from convoy.bench.doubles import judge_in_doubles


@pytest.mark.filterwarnings("error")
def test_a_sigmoid_that_overflows_on_the_way_is_no_warning() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        net (float[1,1,2,2] x) => (float[1,1,2,2] y) <float[1,1,1,1] w = {1000.0}> {
            c = Conv (x, w)
            y = Sigmoid (c) }""")
    x = np.float32([[[[-3, -1], [1, 3]]]])
    right, wrong = np.float32(x > 0), np.float32(x < 0)
    verdict = judge_in_doubles(model, {"x": x}, [right], [wrong])["y"]
    assert (verdict.convoy, verdict.reference) == (0.0, 1.0)
