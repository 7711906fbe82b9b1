"""Many tensors of open lengths are joined one after the other, as ONNX Runtime joins them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import convoy
from convoy.relax import joined
from relax.onnx_models import run_onnx


def lists_of_places(count: int, width: int) -> Any:
    """The places of what is not 0 in so many inputs, and these inputs, each joined."""
    names = range(count)
    body = " ".join(f"p{i} = NonZero (x{i}) t{i} = Transpose (p{i})" for i in names)
    given = ", ".join(f"float[n{i}, {width}] x{i}" for i in names)
    places, inputs = (", ".join(f"{of}{i}" for i in names) for of in "tx")
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]>
        joined ({given}) => (int64[m, 2] y, float[k, {width}] z) {{
            {body} y = Concat <axis = 0> ({places}) z = Concat <axis = 0> ({inputs})
        }}"""
    )


@pytest.mark.slow
@pytest.mark.parametrize(("count", "joins"), [(joined.LEAST, 1), (joined.LEAST - 1, 0)])
def test_many_late_lengths(count: int, joins: int, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    made = []
    join = joined._join
    monkeypatch.setattr(joined, "_join", lambda *given: made.append(len(given) - 1) or join(*given))
    model = lists_of_places(count, 3)
    runner = convoy.load(convoy.compile(model))
    assert made[:1] == [count] * joins
    for _ in range(3):
        given = [(rng.random((rng.integers(0, 4), 3)) < 0.5).astype(np.float32) for _ in range(count)]
        for found, wanted in zip(runner.run(given), run_onnx(model, *given), strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_vectors_and_fixed_lengths_among_them() -> None:
    rng = np.random.default_rng(1)
    names = ", ".join(f"x{i}" for i in range(6))
    kinds = ", ".join(f"float[{'n' if i % 2 else 3}] x{i}" for i in range(6))
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> joined ({kinds}) => (float[m] y) {{
            y = Concat <axis = 0> ({names}) }}"""
    )
    given = [rng.random(5 if i % 2 else 3).astype(np.float32) for i in range(6)]
    (found,) = convoy.load(convoy.compile(model)).run(given)
    np.testing.assert_array_equal(found, run_onnx(model, *given)[0])


@pytest.mark.parametrize(("axis", "shape"), [(1, "2, {n}"), (-1, "3, 2, {n}"), (1, "3, {n}, 2")])
def test_along_any_axis(axis: int, shape: str, monkeypatch) -> None:
    rng = np.random.default_rng(1)
    made = []
    join = joined._join
    monkeypatch.setattr(joined, "_join", lambda *given: made.append(given[0]) or join(*given))
    names = [f"x{i}" for i in range(joined.LEAST)]
    kinds = ", ".join(f"int64[{shape.format(n=f'n{x}')}] {x}" for x in names)
    model = parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> joined ({kinds}) => (int64[{shape.format(n="m")}] y) {{
            y = Concat <axis = {axis}> ({", ".join(names)}) }}"""
    )
    runner = convoy.load(convoy.compile(model))
    assert made == [axis % len(shape.split(","))]
    for _ in range(3):
        sizes = [[int(d) for d in shape.format(n=rng.integers(0, 4)).split(",")] for _ in names]
        given = [rng.integers(0, 9, size) for size in sizes]
        (found,) = runner.run(given)
        np.testing.assert_array_equal(found, np.concatenate(given, axis))
