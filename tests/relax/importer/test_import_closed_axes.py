"""Numbers made of an axis whose size is known, beside one that is open: they are constants to every op."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import convoy
from relax.onnx_models import run_onnx

MADE = {
    "TopK": "k = Sub(a, one) y, i = TopK<axis = 2>(x, k)",
    "TopK of few": "d = Sub(a, one) k = Sub(d, two) y, i = TopK<axis = 2>(x, k)",
    "Split": "p = Sub(a, one) both = Concat<axis = 0>(one, p) z, y = Split<axis = 1>(x, both)",
    "Trilu": "t = Sub(a, two) k = Squeeze(t) y = Trilu(x, k)",
    "Expand": "t = Concat<axis = 0>(one, one, one) y = Expand(x, t)",
    "Tile": "t = Concat<axis = 0>(one, a, one) y = Tile(x, t)",
    "Slice": "e = Sub(a, one) y = Slice(x, one, e, two, one)",
    "Resize": 'n = Shape<end = 1>(x) t = Concat<axis = 0>(n, a, a) y = Resize<mode = "linear">(x, , , t)',
}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("shape", ["n, 4, 6", "2, 4, w"])
def test_numbers_of_an_axis_that_is_not_open(name: str, shape: str) -> None:
    text = f"""<ir_version: 9, opset_import: ["": 18]> g (float[{shape}] x) => (float[p, q, r] y) {{
        s = Shape(x) one = Constant<value_ints = [1]>() a = Gather(s, one)
        two = Constant<value_ints = [2]>() {MADE[name]} }}"""
    model = onnx.parser.parse_model(text)
    runner = convoy.Runner(convoy.compile(model, threads=1))
    for size in (6, 7, 3):
        given = [int(d) if d.isdigit() else size for d in shape.split(", ")]
        if name.startswith("TopK") and given[2] < 4:
            continue
        x = np.random.default_rng(size).standard_normal(given).astype(np.float32)
        np.testing.assert_allclose(runner.run([x])[0], run_onnx(model, x)[0], rtol=1e-5, atol=1e-5)
