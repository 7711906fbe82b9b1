"""The largest and the smallest of nothing but infinities are infinities, whoever computes them."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import tvm
from open_models import Sketch
from tvm import relax

import convoy

INF = np.float32(np.inf)


@pytest.mark.parametrize("rows", [3, "n"])
@pytest.mark.parametrize(("op", "worst"), [("ReduceMax", -INF), ("ReduceMin", INF)])
def test_infinities_are_left(op: str, worst: float, rows: int | str) -> None:
    s = Sketch(rows, 4, 5)
    found = [
        s.add(op, "x", axes=axes, keepdims=kept) for axes in ([2], [-2, 2], [0, 1, 2]) for kept in (0, 1)
    ]
    model = s.model(*found)
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    x[:2, 1:] = worst
    x[0] = worst
    machine = relax.VirtualMachine(convoy.compile(model, "portable"), tvm.cpu())
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for ours, want in zip(machine["main"](tvm.runtime.tensor(x)), wanted, strict=True):
        np.testing.assert_array_equal(ours.numpy(), want)
    x = np.zeros_like(x)  # the twin: finite numbers are as before
    for ours in machine["main"](tvm.runtime.tensor(x)):
        assert not ours.numpy().any()


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_integers_are_left_to_tvm(op: str) -> None:
    s = Sketch("n", 4)
    counts = s.add("Cast", "x", to=7)
    model = s.model(s.add("Cast", s.add(op, counts, axes=[1], keepdims=0), to=1))
    machine = relax.VirtualMachine(convoy.compile(model, "portable"), tvm.cpu())
    x = np.array([[3, -7, 2, 9], [-4, -3, -2, -9]], np.float32)
    (wanted,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(machine["main"](tvm.runtime.tensor(x)).numpy(), wanted)


@pytest.mark.parametrize("rows", [3, "n"])
@pytest.mark.parametrize("late", [False, True])
def test_a_sum_of_powers_of_infinities_is_one(rows: int | str, late: bool) -> None:
    s = Sketch(rows, 4, 5)
    axes = s.numbers(2)
    if late:
        axes = s.add(
            "Unsqueeze", s.add("Sub", s.add("Size", s.add("Shape", "x")), s.scalar(1)), s.numbers(0)
        )
    model = s.model(*(s.add("ReduceLogSumExp", "x", axes, keepdims=kept) for kept in (0, 1)))
    model.opset_import[0].version = 18
    x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    x[0] = -INF
    x[1, 1:] = INF
    x[2, 0, 1:] = -INF
    machine = relax.VirtualMachine(convoy.compile(model, "portable"), tvm.cpu())
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for ours, want in zip(machine["main"](tvm.runtime.tensor(x)), wanted, strict=True):
        np.testing.assert_allclose(ours.numpy(), want, rtol=1e-5, atol=1e-6)
