"""A NaN stays one, and is quantised to the least integer, whoever computes it."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from open_models import Sketch
from tvm import relax

import convoy
from convoy.relax.nans import keep_nans

NAN = np.float32(np.nan)
SPECIAL = np.float32([NAN, np.inf, -np.inf, 0.5, -0.5, 2.5, 900.0, -900.0])
BOUNDED: dict[str, Callable[[Sketch], str]] = {
    "relu": lambda s: s.add("Relu", "x"),
    "clip": lambda s: s.add("Clip", "x", s.number(-0.3), s.number(0.6)),
    "above": lambda s: s.add("Clip", "x", s.number(-0.3)),
    "max": lambda s: s.add("Max", "x", s.number(0.25)),
    "min": lambda s: s.add("Min", s.number(0.25), "x"),
    "elu": lambda s: s.add("Elu", "x"),
    "hard": lambda s: s.add("HardSigmoid", "x"),
    "sign": lambda s: s.add("Sign", "x"),
}


def array(s: Sketch, numbers: np.ndarray) -> str:
    """A constant."""
    s.constants.append(numpy_helper.from_array(numbers, f"a{len(s.constants)}"))
    return s.constants[-1].name


def quantizing(s: Sketch, scale: np.ndarray, zeros: list[np.ndarray], axis: int = 1) -> onnx.ModelProto:
    """A model that quantises x, with each zero point, and to its type."""
    one = array(s, scale)
    names = [s.add("QuantizeLinear", "x", one, array(s, zero), axis=axis) for zero in zeros]
    model = s.model(*names)
    model.opset_import[0].version = 21
    for value, zero in zip(model.graph.output, zeros, strict=True):
        value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(zero.dtype)
    return model


def agree(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    """What Convoy gives, which is what ONNX Runtime does."""
    machine = relax.VirtualMachine(convoy.compile(model, "portable"), tvm.cpu())
    session = onnxruntime.InferenceSession(model.SerializeToString())
    made = machine["main"](tvm.runtime.tensor(x))
    ours = [made.numpy()] if hasattr(made, "numpy") else [part.numpy() for part in made]
    for got, want in zip(ours, session.run(None, {"x": x}), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6)
    return ours


@pytest.mark.parametrize("rows", [1, "n"])
@pytest.mark.parametrize("name", BOUNDED)
def test_a_bound_keeps_a_nan(name: str, rows: int | str) -> None:
    s = Sketch(rows, 8)
    model = s.model(BOUNDED[name](s))
    (made,) = agree(model, SPECIAL[None])
    assert np.isnan(made).sum() == 1
    agree(model, np.linspace(-2, 2, 8, dtype=np.float32)[None])  # the twin: numbers are as before


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, "n"])
def test_a_nan_is_quantised_to_the_least_integer(rows: int | str) -> None:
    s = Sketch(rows, 8)
    zeros = [np.asarray(z, d) for z, d in ((5, "u1"), (5, "i1"), (-100, "i1"), (40000, "u2"), (-7, "i2"))]
    model = quantizing(s, np.float32(0.5), zeros)
    for zero, made in zip(zeros, agree(model, SPECIAL[None]), strict=True):
        assert made[0, 0] == np.iinfo(zero.dtype).min
        assert made[0, 5] == zero + 5  # the twin: 2.5 is five steps
    agree(model, (np.arange(8, dtype=np.float32)[None] - 4) / 4)  # ties go to the even neighbour


def test_a_scale_for_each_channel_is_that_of_its_channel() -> None:
    s = Sketch("n", 4)
    model = quantizing(s, np.float32([0.5, 0.25, 2, 1]), [np.uint8([1, 2, 3, 4])], axis=-1)
    agree(model, np.float32([[NAN, 1, 1, 1], [1, NAN, NAN, 1], [-1, 2, 3, NAN]]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_floats_of_other_lengths_keep_a_nan(dtype: str) -> None:
    x = relax.Var("x", relax.TensorType((4,), dtype))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.emit(relax.op.nn.relu(bb.emit(relax.op.maximum(x, bb.emit(relax.op.negative(x))))))
        bb.emit_func_output(bb.emit(relax.op.astype(y, "float32")))
    machine = relax.VirtualMachine(convoy.compile(bb.get(), "portable"), tvm.cpu())
    given = np.array([NAN, -1.5, np.inf, 0.25]).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    made = machine["main"](tvm.runtime.tensor(given)).numpy()
    np.testing.assert_array_equal(made, np.float32([NAN, 1.5, np.inf, 0.25]))


def test_integers_are_left_to_tvm() -> None:
    x = relax.Var("x", relax.TensorType((4,), "int32"))
    bb = relax.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.emit(relax.op.maximum(bb.emit(relax.op.nn.relu(x)), relax.const(np.int32([3, 3, 3, 3]))))
        bb.emit_func_output(y)
    module = bb.get()
    tvm.ir.assert_structural_equal(keep_nans()(module), module)


@pytest.mark.slow
def test_what_is_not_so_is_no_opposite() -> None:
    # not(a < b) is not b <= a, and x is not equal to itself
    s = Sketch("n", 8)
    kinds = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
    made = [s.add("Not", s.add(kind, "x", other)) for kind in kinds for other in ("x", s.number(0.5))]
    made += [s.add("Or", s.add("Less", "x", "x"), s.add("GreaterOrEqual", "x", "x"))]
    model = s.model(*made)
    for value in model.graph.output:
        value.type.tensor_type.elem_type = TensorProto.BOOL
    agree(model, SPECIAL[None])


def test_what_is_not_equal_in_a_module() -> None:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType((8,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            made = builder.emit_output(relax.op.not_equal(x, x))
        builder.emit_func_output(made)
    machine = relax.VirtualMachine(convoy.compile(builder.get(), "portable"), tvm.cpu())
    assert machine["main"](tvm.runtime.tensor(SPECIAL)).numpy().tolist() == [True, *[False] * 7]
