"""The largest and the smallest of nothing but infinities are infinities, whoever computes them."""

from __future__ import annotations

import ml_dtypes
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


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("sides", [(6, 7), ("h", "w")])
def test_pools_of_nothing_but_infinities_are_infinite(
    sides: tuple[int | str, int | str], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # ONNX Runtime gives -inf for some windows and -3.4e38 for others, as many taps fill a vector or not
    monkeypatch.setattr("convoy.offload.work.WORTH_BYTES", 0)
    left = () if taken else [f"max_pool{n}d" for n in (1, 2, 3)]
    s = Sketch(1, 8, *sides)
    forms = [
        {"kernel_shape": [3, 3]},
        {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [1, 0, 2, 1], "ceil_mode": 1},
        {"kernel_shape": [2, 2], "dilations": [2, 3], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [4, 3], "strides": [3, 2], "auto_pad": "SAME_UPPER"},
    ]
    pools = [s.add("MaxPool", "x", **form) for form in forms]
    rows = s.add("MaxPool", s.add("Reshape", "x", s.numbers(0, 8, -1)), kernel_shape=[3], pads=[1, 1])
    deep = s.add(
        "MaxPool", s.add("Unsqueeze", "x", s.numbers(2)), kernel_shape=[1, 3, 3], pads=[0, 1, 1, 0, 1, 1]
    )
    model = s.model(*pools, rows, deep)
    executable = convoy.compile(model, "portable", disabled_ops=left)
    steps = " ".join(step for region in executable.report.regions for step in region.steps)
    assert ("max_pool" in steps) == taken
    machine = relax.VirtualMachine(executable, tvm.cpu())
    x = np.full((1, 8, 6, 7), -INF)
    for ours in machine["main"](tvm.runtime.tensor(x)):
        assert ours.numpy().size
        np.testing.assert_array_equal(ours.numpy(), -INF)
    # the twin: of numbers the largest is what it was
    x = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for ours, want in zip(machine["main"](tvm.runtime.tensor(x)), wanted, strict=True):
        np.testing.assert_array_equal(ours.numpy(), want)


def test_pools_that_tvm_computes_keep_a_nan() -> None:
    s = Sketch(1, 1, 2, 3)
    model = s.model(s.add("MaxPool", "x", kernel_shape=[1, 3], pads=[0, 0, 0, 1]))
    executable = convoy.compile(model, "portable", disabled_ops="max_pool2d")
    x = np.array([[5, np.nan, 1], [2, 3, 4]], np.float32).reshape(1, 1, 2, 3)
    found = relax.VirtualMachine(executable, tvm.cpu())["main"](tvm.runtime.tensor(x)).numpy()
    np.testing.assert_array_equal(found.reshape(2, 2), [[np.nan, np.nan], [4, 4]])


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("taken", [True, False])
def test_reductions_keep_a_nan_wherever_it_is(
    op: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("convoy.offload.work.WORTH_BYTES", 0)
    s = Sketch(3, 4, 5)
    model = s.model(*(s.add(op, "x", axes=axes, keepdims=0) for axes in ([2], [0, 1], [0, 1, 2])))
    left = () if taken else ("max", "min")
    machine = relax.VirtualMachine(convoy.compile(model, "portable", disabled_ops=left), tvm.cpu())
    for place in range(60):
        x = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
        x.flat[place] = np.nan
        of = np.max if op == "ReduceMax" else np.min
        wanted = of(x, 2), of(x, (0, 1)), of(x, (0, 1, 2))
        for ours, want in zip(machine["main"](tvm.runtime.tensor(x)), wanted, strict=True):
            np.testing.assert_array_equal(ours.numpy(), want)


def test_extremes_of_bfloat16() -> None:
    # TVM has no isnan of bfloat16, and the build ended there
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 2, 2, 2), "bfloat16"))
    with bb.function("main", [x]):
        with bb.dataflow():
            found = [relax.op.max(x, [3]), relax.op.min(x, [3]), relax.op.nn.max_pool2d(x, (1, 2))]
            made = bb.emit_output(relax.Tuple([bb.emit(one) for one in found]))
        bb.emit_func_output(made)
    data = np.array([1, np.nan, -np.inf, -np.inf, 3, 4, np.nan, np.inf], ml_dtypes.bfloat16)
    data = data.reshape(1, 2, 2, 2)
    machine = relax.VirtualMachine(tvm.compile(bb.get(), target="convoy"), tvm.cpu())
    largest, smallest, pooled = (made.numpy() for made in machine["main"](tvm.runtime.tensor(data)))
    nan = np.nan
    np.testing.assert_array_equal(largest.ravel().astype(float), [nan, -np.inf, 4, nan])
    np.testing.assert_array_equal(smallest.ravel().astype(float), [nan, -np.inf, 3, nan])
    np.testing.assert_array_equal(pooled.ravel().astype(float), [nan, -np.inf, 4, nan])
