"""Quantise and dequantise in Relax: taken with constant scales, left with a reason with others."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from convoy.graph.ops import Conv2d, Dequantize, Quantize
from convoy.relax.fold import fold
from pairs import pairs
from relax.sketch import KEEP_ALL, Cut, const, module, random, weight

X = (1, 4, 6, 8)
STEP = 0.25


def numbers(dtype: str, channels: int = 1) -> tuple[relax.Expr, relax.Expr]:
    """A scale and zero point, or some."""
    scale, zero = np.linspace(0.25, 0.5, channels), np.arange(channels)
    shape = [] if channels == 1 else [channels]
    return const(scale.reshape(shape)), relax.const(zero.reshape(shape).astype(dtype), dtype)


@pytest.mark.parametrize(
    ("along", "shape", "dtype"),
    pairs([(1, 1), (1, 4), (-1, 8), (2, 6)], [X, (3, *X[1:]), ("n", *X[1:])], ["uint8", "int8"]),
)
def test_bytes_are_what_tvm_makes(dtype: str, along: tuple[int, int], shape: tuple[object, ...]) -> None:
    axis, channels = along
    if "n" in shape:
        shape = (tvm.tirx.Var("n", "int64"), *X[1:])
    scales = numbers(dtype, channels)

    def make(bind, x):
        q = bind(op.quantize(x, *scales, axis=axis, out_dtype=dtype))
        return q, bind(op.dequantize(q, *scales, axis=axis))

    cut = Cut(make, shape, options=KEEP_ALL)
    assert (cut.left, sorted(name for names in cut.composites for name in names)) == (
        [],
        ["dequantize", "quantize"],
    )
    cut = Cut(lambda bind, x: make(bind, bind(op.nn.max_pool2d(x))), shape)
    images = shape[0] if isinstance(shape[0], int) else 2
    x = np.round(random(images, *X[1:]) * 40) * np.float32(STEP / 2)
    for got, want in zip(cut.run(x), cut.run_tvm(x), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def test_bytes_come_into_a_region() -> None:
    scales = numbers("int8")

    def make(bind, x):
        return bind(op.nn.conv2d(bind(op.dequantize(x, *scales)), weight(6, 4, 3, 3)))

    cut = Cut(make, relax.TensorType((2, *X[1:]), "int8"))
    assert cut.left == []
    graph = cut.graph
    assert [graph.dtype(name) for name in graph.inputs] == ["int8"]
    assert [type(node) for node in graph.nodes] == [Dequantize, Conv2d]
    x = np.random.default_rng(0).integers(-128, 128, (2, *X[1:])).astype(np.int8)
    np.testing.assert_allclose(cut.run(x)[0], cut.run_tvm(x)[0], rtol=1e-4, atol=1e-4)


def test_a_scale_for_each_image_is_no_image_of_a_batch() -> None:
    # [3, ...] with a scale along axis 0: the region's axis 0 is read as it is
    scale, zero = const(np.linspace(0.25, 0.5, 3)), relax.const(np.arange(3, dtype="int8"), "int8")

    def make(bind, x):
        return bind(op.quantize(bind(op.nn.relu(x)), scale, zero, axis=0, out_dtype="int8"))

    cut = Cut(make, (3, 4096, 8))
    assert cut.left == []
    assert any(isinstance(node, Quantize) and node.axis == 1 for node in cut.graph.nodes)
    x = random(3, 4096, 8) * 20
    np.testing.assert_array_equal(cut.run(x)[0], cut.run_tvm(x)[0])


def test_other_types_and_computed_scales_are_left() -> None:
    (scale, zero) = numbers("int8")
    wide = relax.const(np.zeros((), "int16"), "int16")
    cut = Cut(lambda bind, x: bind(op.quantize(x, scale, wide, out_dtype="int16")), X, options=KEEP_ALL)
    assert cut.reasons == ["expected float32 or int32 or int8 or uint8, got int16"]
    cut = Cut(lambda bind, x, s: bind(op.quantize(x, s, zero, out_dtype="int8")), X, (), options=KEEP_ALL)
    assert cut.reasons == ["expected a constant scale, got a parameter; bind it"]
    none = const(0.0)
    cut = Cut(lambda bind, x: bind(op.quantize(x, none, zero, out_dtype="int8")), X, options=KEEP_ALL)
    assert cut.reasons == ["expected scales above 0, got another"]
    tiny = const(1e-40)
    cut = Cut(lambda bind, x: bind(op.quantize(x, tiny, zero, out_dtype="int8")), X, options=KEEP_ALL)
    assert cut.reasons == ["expected scales from 1.18e-38, got a smaller one"]


def test_a_batch_norm_behind_bytes_stays_behind_them() -> None:
    # conv2d -> quantize -> dequantize -> multiply: the rounding is between the weight and the scale
    scales = numbers("uint8")

    def make(bind, x):
        y = bind(op.nn.conv2d(x, weight(6, 4, 3, 3)))
        y = bind(op.dequantize(bind(op.quantize(y, *scales, out_dtype="uint8")), *scales))
        return bind(op.multiply(y, const(np.full((1, 6, 1, 1), 3.0))))

    folded = fold()(module(make, X))
    names = [str(b.value.op.name) for b in folded["main"].body.blocks[0].bindings]
    assert names == ["relax.nn.conv2d", "relax.quantize", "relax.dequantize", "relax.multiply"]
