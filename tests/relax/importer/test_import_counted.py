"""Loops whose condition follows from constants are written out: they run as often at every call."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from convoy.relax.importer import load
from convoy.relax.importer.counted import count_steps

MODEL = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[2, 3] x, int64 asked) => (float[2, 3] y, int64 k, float[n, 2, 3] rows)
<int64 count = {{{count}}}, bool yes = {{1}}, int64 zero = {{0}}, int64 one = {{1}}, int64 three = {{3}}> {{
    y, k, rows = Loop ({given}, yes, x, zero) <body = step
        (int64 i, bool c, float[2, 3] s, int64 before)
        => (bool {ends}, float[2, 3] t, int64 after, float[2, 3] r) {{
        after = Add (before, one)
        goes = Less (after, {limit})
        f = Cast <to: int = 1> (after)
        t = Mul (s, f)
        r = Neg (t)
        never = Less (i, i)
    }}>
}}
"""
COUNTED = {
    "without a count": {},
    "a count above": {"given": "count", "count": 1 << 62},
    "a count below": {"given": "count", "count": 2},
    "once": {"ends": "never"},
}
NOT_COUNTED = {
    "a call says how often": {"limit": "asked"},
    "more steps than are written out": {"limit": "count", "count": 5000},
}


def model(count: int = 1, given: str = "", limit: str = "three", ends: str = "goes") -> onnx.ModelProto:
    return onnx.parser.parse_model(MODEL.format(count=count, given=given, limit=limit, ends=ends))


def agrees(network: onnx.ModelProto, run_tvm: Callable[..., list], run_onnx: Callable[..., list]) -> int:
    """Whether it computes what ONNX Runtime does; the number of its functions."""
    module, given = load(network), (np.full((2, 3), 0.5, np.float32), np.array(3))
    for found, expected in zip(run_tvm(module, *given), run_onnx(network, *given), strict=True):
        np.testing.assert_array_equal(found, expected)
    return len(module.get_global_vars())


@pytest.mark.parametrize("case", COUNTED)
def test_a_loop_that_counts_itself_is_written_out(case: str, run_tvm, run_onnx) -> None:
    # as PyTorch's exporter writes an EmbeddingBag: while k < 3, of a k that begins at 0
    assert agrees(model(**COUNTED[case]), run_tvm, run_onnx) == 1


GROWING = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[1] x) => (int64[m] y)
<int64[2] begin = {{1, 2}}, int64 most = {{4611686018427387904}}, int64[1] large = {{1073741824}}> {{
    y = Loop (, , begin) <body = step (int64 i, bool c, int64[k] s) => (bool goes, int64[l] t) {{
        t = {grown}
        n = Size (t)
        goes = Less (n, most)
    }}>
}}
"""


@pytest.mark.parametrize("grown", ["Concat <axis = 0> (s, s)", "Expand (s, large)", "Tile (s, large)"])
def test_a_condition_of_numbers_that_grow_is_not_evaluated_to_its_end(grown: str) -> None:
    node = onnx.parser.parse_model(GROWING.format(grown=grown)).graph.node[0]
    outside = {"begin": np.array([1, 2]), "most": np.array(1 << 62), "large": np.array([1 << 30])}
    assert count_steps(node, node.attribute[0].g, outside, {"": 17}, 20_000) is None


@pytest.mark.slow
@pytest.mark.parametrize("case", NOT_COUNTED)
def test_others_stay_loops(case: str, run_tvm, run_onnx) -> None:
    assert agrees(model(**NOT_COUNTED[case]), run_tvm, run_onnx) > 1
