"""Branches that give tensors of other ranks, and what is computed of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from convoy.relax.importer import load

NETWORK = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[n, 8] x, bool c) => (float y) {
    t = If (c) <
        then_branch = flat () => (float[a, b] f) { f = Relu (x) },
        else_branch = deep () => (float[a, b, d] g) {
            first = Constant <value_ints = [0]> ()
            h = Tanh (x)
            g = Unsqueeze (h, first)
        }
    >
    rows = Constant <value_ints = [-1, 8]> ()
    FOLLOWS
}
"""


@pytest.mark.parametrize(
    "follows",
    [
        "y = Sigmoid (t)",
        "y = Add (t, x)",
        "y = Reshape (t, rows)",
        "y = ReduceSum <keepdims = 0> (t)",
        "s = Shape (t) y = Cast <to = 1> (s)",
        "z = Exp (x) r = Reshape (t, rows) y = Mul (r, z)",
    ],
)
def test_what_follows_from_branches_of_other_ranks_is_computed(follows, run_tvm, run_onnx, rng) -> None:
    model = onnx.parser.parse_model(NETWORK.replace("FOLLOWS", follows))
    module = load(model)
    for rows, condition in ((3, True), (2, False)):
        feeds = rng.standard_normal((rows, 8)).astype("float32"), np.array(condition)
        found, wanted = run_tvm(module, *feeds)[0], run_onnx(model, *feeds)[0]
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
