"""Open sizes as data: a tensor of them beside ops whose tensors have those sizes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

import convoy
from convoy.relax.size_tensors import compute_sizes_apart

MASK = """<ir_version: 9, opset_import: ["": 20]>
mask (int64[n, t] ids, int64[m, t] mask) => (int64[n, t] y)
<int64 zero = {0}, int64 one = {1}, int64[1] last = {-1}, int64[1] second = {1}, int64[1] first = {0}> {
    count = Shape <start = 0, end = 1> (ids)
    images = Squeeze (count)
    row = Range (zero, images, one)
    rows = Unsqueeze (row, second)
    length = Shape <start = 1, end = 2> (ids)
    steps = Squeeze (length)
    column = Range (zero, steps, one)
    columns = Unsqueeze (column, first)
    both = Shape (ids)
    r = Expand (rows, both)
    c = Expand (columns, both)
    at_row = Unsqueeze (r, last)
    at_column = Unsqueeze (c, last)
    at = Concat <axis = -1> (at_row, at_column)
    y = GatherND (mask, at)
}"""
"""The mask of each token, as torch.export writes it: a negative index is the size plus it."""


@pytest.mark.slow
def test_sizes_that_become_data_do_not_break_tvms_fusion() -> None:
    model = onnx.parser.parse_model(MASK)
    machine = relax.VirtualMachine(convoy.compile(model, threads=1), tvm.cpu())
    for n, t in ((2, 3), (4, 1)):
        mask = np.arange(n * t).reshape(n, t)
        found = machine["main"](tvm.runtime.tensor(mask), tvm.runtime.tensor(mask))
        np.testing.assert_array_equal(found.numpy(), mask)


BEHIND = """<ir_version: 9, opset_import: ["": 20]>
behind (float[p, q] cache) => (int64[q] y) <int64 one = {1}, int64 two = {2}> {
    before = Shape <start = 0, end = 1> (cache)
    start = Squeeze (before)
    new = Shape <start = 1, end = 2> (cache)
    count = Squeeze (new)
    limit = Add (start, count)
    places = Range (start, limit, one)
    y = Add (places, two)
}"""
"""Places behind a cache, as a decoder's table of positions is asked for."""


def test_numbers_that_begin_at_a_size_do_not_break_tvms_fusion() -> None:
    machine = relax.VirtualMachine(convoy.compile(onnx.parser.parse_model(BEHIND), threads=1), tvm.cpu())
    for p, q in ((3, 4), (7, 1)):
        found = machine["main"](tvm.runtime.tensor(np.zeros((p, q), "float32")))
        np.testing.assert_array_equal(found.numpy(), np.arange(p, p + q) + 2)


@I.ir_module
class Sizes:
    @R.function
    def main(x: R.Tensor(("n", "m"), "int64")) -> R.Tensor((2,), "int64"):
        n, m = T.int64(), T.int64()
        with R.dataflow():
            size = R.shape_to_tensor(R.shape([n, m]))
            R.output(size)
        return size


def test_known_sizes_are_left_to_tvm() -> None:
    known = relax.transform.BindSymbolicVars({"n": 2, "m": 3})(Sizes)
    tvm.ir.assert_structural_equal(compute_sizes_apart()(known), known)
    assert "sizes" in {var.name_hint for var in compute_sizes_apart()(Sizes).get_global_vars()}
