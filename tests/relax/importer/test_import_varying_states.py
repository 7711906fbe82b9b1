"""Loops whose states a step makes longer or shorter, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import convoy

STEPS = {
    "grows by an input": "k2 = Concat <axis = 0> (k, x)",
    "grows in front": "k2 = Concat <axis = 0> (e, k)",
    "doubles": "k2 = Concat <axis = 0> (k, k)",
    "becomes another size, once": "k2 = Neg (e)",
    "becomes a sum of sizes, once": "k2 = Concat <axis = 0> (e, x)",
    "is cut": """
        one = Constant <value = int64[1] {1}> ()
        far = Constant <value = int64[1] {9223372036854775807}> ()
        long = Concat <axis = 0> (k, three)
        k2 = Slice (long, one, far)""",
    "grows by what attends to it": """
        zero = Constant <value = int64[1] {0}> ()
        q = ReduceMean <axes = [0], keepdims = 1> (x)
        turned = Transpose <perm = [1, 0]> (k)
        scores = MatMul (q, turned)
        shares = Softmax <axis = 1> (scores)
        row = MatMul (shares, k)
        k2 = Concat <axis = 0> (k, row)""",
    "is filtered": """
        half = Constant <value = float {0.4}> ()
        flat = Constant <value = int64[1] {-1}> ()
        means = ReduceMean <axes = [1], keepdims = 0> (k)
        inside = Greater (means, half)
        places = NonZero (inside)
        those = Reshape (places, flat)
        k2 = Gather (k, those)""",
    "is as long as its step's number says": """
        most = Add (i, i)
        one = Constant <value = int64 {1}> ()
        numbers = Range (i, most, one)
        last = Constant <value = int64[1] {1}> ()
        column = Unsqueeze (numbers, last)
        given = Cast <to = 1> (column)
        row = ReduceMax <axes = [0], keepdims = 1> (e)
        k2 = Mul (given, row)""",
    "grows in a loop within": """
        twice = Constant <value = int64 {2}> ()
        k2 = Loop (twice, , k) <body = inner (int64 j, bool d, float[P, 4] u) => (bool on, float[Q, 4] v) {
            v = Concat <axis = 0> (u, x)
            on = Identity (d)
        }>""",
    "is added to as it was": """
        sum = Add (k, x)
        k2 = Add (sum, e)""",
}


def grown(step: str, first: str = "x") -> onnx.ModelProto:
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> network
        (float[N, 4] x, float[M, 4] e, float[3, 4] three, int64 count) => (float[A, 4] y) {{
            none = Constant <value = float[0, 4] {{}}> ()
            y = Loop (count, , {first}) <body = step (int64 i, bool c, float[K, 4] k)
                => (bool go, float[L, 4] k2) {{
                {step}
                go = Identity (c)
            }}>
        }}""")  # fmt: skip


def agree(model: onnx.ModelProto, calls: list[dict[str, Any]], run_onnx) -> None:
    runner = convoy.Runner(convoy.compile(model, threads=1))
    for given in calls:
        found, wanted = runner.run(given), run_onnx(model, *given.values())
        for got, want in zip(found, wanted, strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-5)


def rows(rng: np.random.Generator, n: int, m: int, count: int) -> dict[str, Any]:
    x, e, three = (rng.random((length, 4), "float32") for length in (n, m, 3))
    return {"x": x, "e": e, "three": three, "count": np.array(count)}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_a_state_may_change_its_length(name: str, run_onnx, rng) -> None:
    lengths = [(2, 2, 3), (2, 2, 0), (1, 1, 5)]
    if name != "is added to as it was":
        lengths += [(3, 1, 1), (1, 4, 4)]
    agree(grown(STEPS[name]), [rows(rng, *each) for each in lengths], run_onnx)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grows by an input", "doubles", "grows in front"])
def test_a_state_may_begin_with_nothing(name: str, run_onnx, rng) -> None:
    calls = [rows(rng, *each) for each in [(3, 1, 1), (3, 1, 0), (1, 2, 4)]]
    agree(grown(STEPS[name], "none"), calls, run_onnx)


@pytest.mark.slow
def test_a_state_of_a_known_size_may_grow(run_onnx, rng) -> None:
    agree(grown(STEPS["grows by an input"], "three"), [rows(rng, 2, 1, 3), rows(rng, 1, 1, 0)], run_onnx)


@pytest.mark.slow
def test_a_map_may_grow_as_long_as_a_value_says(run_onnx, rng) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> network
        (float[1, 3, H, W] x, float[3, 3, 3, 3] w, float limit) => (float[A, B, C, D] y, float[R] t) {
            yes = Constant <value = bool {1}> ()
            y, t = Loop (, yes, x) <body = step (int64 i, bool c, float[1, 3, P, Q] k)
                => (bool go, float[1, 3, R, S] k2, float m) {
                wide = Conv <pads = [1, 1, 2, 2]> (k, w)
                k2 = Relu (wide)
                m = ReduceMax <keepdims = 0> (k2)
                go = Greater (m, limit)
            }>
        }""")  # fmt: skip
    w = np.full((3, 3, 3, 3), 0.02, "float32")
    maps = [rng.random((1, 3, 6 + n, 5), "float32") for n in range(3)]
    calls = [
        {"x": x, "w": w, "limit": np.array(limit, "float32")}
        for x, limit in zip(maps, (0.1, 0.2, 9), strict=True)
    ]
    agree(model, calls, run_onnx)


@pytest.mark.slow
def test_two_states_of_which_one_grows(run_onnx, rng) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]> network
        (float[N, 4] x, float[4] s, int64 count) => (float[A, 4] y, float[4] z, float[R, 4] t) {
            zero = Constant <value = int64[1] {0}> ()
            y, z, t = Loop (count, , x, s) <body = step (int64 i, bool c, float[K, 4] k, float[4] r)
                => (bool go, float[L, 4] k2, float[4] r2, float[4] row) {
                wide = Unsqueeze (r, zero)
                k2 = Concat <axis = 0> (k, wide)
                half = ReduceMean <axes = [0], keepdims = 0> (k2)
                r2 = Add (half, r)
                row = Neg (r2)
                go = Identity (c)
            }>
        }""")  # fmt: skip
    lengths = [(2, 3), (1, 0), (4, 6)]
    calls = [
        {"x": rng.random((n, 4), "float32"), "s": rng.random(4, "float32"), "count": np.array(count)}
        for n, count in lengths
    ]
    agree(model, calls, run_onnx)
