"""Regions of many tensors, each with a length of its own that a call tells."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import parser

import convoy
from convoy.report.decision import Report


def joined(lengths: Sequence[int | str], op: str = "") -> onnx.ModelProto:
    """Inputs of these lengths that are joined, by an op or as they are."""
    names = [f"x{i}" for i in range(len(lengths))]
    given = ", ".join(f"float[2, {n}, 3] {x}" for x, n in zip(names, lengths, strict=True))
    body = " ".join(f"y{x} = {op} ({x})" for x in names) if op else ""
    parts = ", ".join(f"y{x}" if op else x for x in names)
    return parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 17]> joined ({given}) => (float[2, m, 3] z) {{
            {body} z = Concat <axis = 1> ({parts}) }}"""
    )


def arrays(*lengths: int) -> list[np.ndarray]:
    return [np.random.default_rng(n).standard_normal((2, n, 3)).astype(np.float32) for n in lengths]


@pytest.mark.parametrize("op", ["Relu", "Softmax"])
def test_any_of_them_may_have_no_elements(op: str) -> None:
    report = Report()
    runner = convoy.load(convoy.compile(joined(["a", "b", "c"], op), "portable", report=report))
    assert len(report.regions) == 1
    compute = {"Relu": lambda x: np.maximum(x, 0), "Softmax": softmax}[op]
    for lengths in ((0, 2, 5), (2, 0, 5), (2, 5, 0), (0, 0, 3), (4, 0, 0), (0, 0, 0), (1, 2, 3)):
        given = arrays(*lengths)
        (found,) = runner.run(given)
        np.testing.assert_allclose(found, compute(np.concatenate(given, axis=1)), rtol=1e-5)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x)
    return powers / powers.sum(axis=-1, keepdims=True)


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [[f"n{i}" for i in range(70)], [3] * 1030])
def test_there_may_be_any_number_of_them(lengths: Sequence[int | str]) -> None:
    runner = convoy.load(convoy.compile(joined(lengths), "portable"))
    given = arrays(*(n if isinstance(n, int) else i % 4 for i, n in enumerate(lengths)))
    np.testing.assert_array_equal(runner.run(given)[0], np.concatenate(given, axis=1))
