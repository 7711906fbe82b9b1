"""fold/anchors.py: convolutions and matmuls take maps before and after them into a weight and a bias."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_door import CONV, Function, make_node, run

from convoy.fold.affine import Affine
from convoy.fold.anchors import Anchor, Geometry, read_geometry
from convoy.fold.constants import Const
from quantising import matrix_of_bits

RANDOM = np.random.default_rng(0)


def vector(size: int) -> np.ndarray:
    return RANDOM.uniform(0.5, 2.0, size)


def anchor_of(name: str, x: tuple[int, ...], weight: np.ndarray, **attrs: Any) -> Anchor:
    node = make_node(name, x, weight.shape, **attrs)
    geometry = read_geometry(node)
    assert geometry is not None
    constants = {node.args[1]: Const(str(weight.dtype), weight)}
    return Anchor(node, geometry, constants.get)


def conv_weight(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_takes_scales_of_both_sides_and_shifts(groups: int) -> None:
    weight = conv_weight(8, 4 // groups, 3, 3)
    anchor = anchor_of("nn.conv2d", (1, 4, 6, 6), weight, **{**CONV, "groups": groups})
    before = Affine(1, vector(4), vector(4))
    after = Affine(1, vector(8), vector(8))
    assert (anchor.input_refusal(before), anchor.refusal(after)) == ("", "")
    anchor.take_input(before)
    anchor.take(after)

    x = RANDOM.standard_normal((1, 4, 6, 6))
    f = Function("float64", x=x.shape, s=x.shape)
    f.add("nn.conv2d", "x", f.constant(weight), **{**CONV, "groups": groups})
    shaped = [v.reshape(-1, 1, 1) for v in (before.scale, before.shift, after.scale, after.shift)]
    want = run(f, x=x * shaped[0] + shaped[1], s=x) * shaped[2] + shaped[3]
    g = Function("float64", x=x.shape)
    assert anchor.factor is not None
    g.add("nn.conv2d", "x", g.constant(weight * anchor.factor), **{**CONV, "groups": groups})
    np.testing.assert_allclose(run(g, x=x) + anchor.shift.reshape(-1, 1, 1), want, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "attrs"), [("matmul", {}), ("nn.dense", {}), ("nn.matmul", {"transpose_b": True})]
)
def test_a_matmul_takes_scales_of_both_sides_and_shifts(name: str, attrs: dict) -> None:
    matrix = conv_weight(4, 6)  # [in, out]
    weight = matrix if name == "matmul" else np.ascontiguousarray(matrix.T)
    anchor = anchor_of(name, (2, 4), weight, **attrs)
    before, after = Affine(1, vector(4), vector(4)), Affine(1, vector(6), vector(6))
    assert (anchor.input_refusal(before), anchor.refusal(after)) == ("", "")
    anchor.take_input(before)
    anchor.take(after)
    assert anchor.factor is not None
    x = RANDOM.standard_normal((2, 4))
    folded = weight * anchor.factor
    got = x @ (folded if name == "matmul" else folded.T) + anchor.shift
    want = ((x * before.scale + before.shift) @ matrix) * after.scale + after.shift
    np.testing.assert_allclose(got, want, rtol=1e-9)


@pytest.mark.parametrize("name", ["matmul", "nn.dense"])
@pytest.mark.parametrize("bits", [4, 8])
def test_a_matrix_of_few_bits_takes_no_scale_of_its_rows(name: str, bits: int) -> None:
    matrix = matrix_of_bits(64, 6, 32, bits, True)
    anchor = anchor_of(name, (2, 64), matrix if name == "matmul" else np.ascontiguousarray(matrix.T))
    assert "few bits" in anchor.input_refusal(Affine(1, vector(64), np.array(0.0)))
    assert anchor.input_refusal(Affine(None, np.array(2.0), np.array(0.0))) == ""
    assert anchor.input_refusal(Affine(1, np.array(1.0), vector(64))) == ""
    assert anchor.refusal(Affine(1, vector(6), vector(6))) == ""


def test_scales_of_a_transposed_convolution_with_groups() -> None:
    weight = conv_weight(4, 3, 2, 2)  # [in, out of a group, kh, kw]
    attrs = {**CONV, "kernel_layout": "IOHW", "groups": 2}
    anchor = anchor_of("nn.conv2d_transpose", (1, 4, 6, 6), weight, **attrs)
    assert anchor.channels_out == 6
    before, after = Affine(1, vector(4), np.zeros(4)), Affine(1, vector(6), np.zeros(6))
    anchor.take_input(before)
    anchor.take(after)
    assert anchor.factor is not None
    for i in range(4):
        for o in range(3):
            want = before.scale[i] * after.scale[3 * (i // 2) + o]
            np.testing.assert_allclose((weight * anchor.factor)[i, o], weight[i, o] * want, rtol=1e-12)


def test_one_map_after_another() -> None:
    anchor = anchor_of("nn.conv2d", (1, 4, 6, 6), conv_weight(8, 4, 1, 1), **CONV)
    anchor.take(Affine(1, np.full(8, 2.0), np.full(8, 1.0)))
    anchor.take(Affine(None, np.array(3.0), np.array(5.0)))
    np.testing.assert_array_equal(anchor.shift, np.full(8, 8.0))
    np.testing.assert_array_equal(anchor.after.scale, np.full(8, 6.0))


def test_what_takes_nothing_keeps_its_weight() -> None:
    anchor = anchor_of("nn.conv2d", (1, 4, 6, 6), conv_weight(8, 4, 1, 1), **CONV)
    assert anchor.factor is None
    anchor.take(Affine(1, np.ones(8), np.ones(8)))
    assert anchor.factor is None


def test_refusals_of_an_output() -> None:
    anchor = anchor_of("nn.conv2d", (1, 4, 6, 6), conv_weight(8, 4, 1, 1), **CONV)
    assert "expected a map along axis 1 of conv2d, got 2" in anchor.refusal(
        Affine(2, vector(6), np.zeros(6))
    )
    assert anchor.refusal(Affine(None, np.array(2.0), np.array(0.0))) == ""
    node = make_node("nn.conv2d", (1, 4, 6, 6), (8, 4, 1, 1), **CONV)
    at_run_time = Anchor(node, Geometry(1, 1, 0, 1), lambda _: None)
    assert "got a run-time value" in at_run_time.refusal(Affine(1, vector(8), np.zeros(8)))
    assert "got a run-time value" in at_run_time.input_refusal(Affine(1, vector(4), np.zeros(4)))


def test_zeros_around_an_input_are_not_shifted() -> None:
    shift, scale = Affine(1, np.ones(4), vector(4)), Affine(1, vector(4), np.zeros(4))
    weight = conv_weight(8, 4, 3, 3)
    padded = anchor_of("nn.conv2d", (1, 4, 6, 6), weight, **{**CONV, "padding": (0, 0, 1, 1)})
    assert "zeros are not shifted" in padded.input_refusal(shift)
    assert padded.input_refusal(scale) == ""
    plain = anchor_of("nn.conv2d", (1, 4, 6, 6), weight, **CONV)
    assert plain.input_refusal(shift) == ""
    transposed = anchor_of(
        "nn.conv2d_transpose", (1, 4, 6, 6), conv_weight(4, 8, 3, 3), **{**CONV, "kernel_layout": "IOHW"}
    )
    assert "got a transpose" in transposed.input_refusal(shift)
    assert transposed.input_refusal(scale) == ""


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_a_scaled_weight_stays_in_the_range_of_its_type(dtype: str) -> None:
    anchor = anchor_of("nn.conv2d", (1, 4, 6, 6), np.ones((8, 4, 1, 1), dtype), **CONV)
    limit = float(np.finfo(dtype).max)
    for factor, kept in (
        (limit / 2, True),
        (limit * 2, False),
        (1e-45 if dtype == "float32" else 1e-5, False),
    ):
        refusal = anchor.refusal(Affine(None, np.array(factor), np.array(0.0)))
        assert (refusal == "") == kept, (factor, refusal)
    # one channel may vanish beside the others, but not in half precision
    scale = np.ones(8)
    scale[3] = 1e-30
    vanishes = anchor.refusal(Affine(1, scale, np.zeros(8)))
    assert (vanishes == "") == (dtype == "float32")
    scale[3] = 0.0
    assert anchor.refusal(Affine(1, scale, np.zeros(8))) == ""


@pytest.mark.parametrize(
    ("attrs", "x", "weight", "axes"),
    [
        ({}, (1, 4, 6, 6), (8, 4, 3, 3), (1, 1, 0, 1)),
        ({"data_layout": "NHWC", "kernel_layout": "HWIO"}, (1, 6, 6, 4), (3, 3, 4, 8), (3, 3, 3, 2)),
        ({"data_layout": "NHWC", "out_layout": "NCHW"}, (1, 6, 6, 4), (8, 4, 3, 3), (1, 3, 0, 1)),
        ({"data_layout": "NCHW16c"}, (1, 1, 6, 6, 16), (8, 16, 3, 3), None),
        ({"kernel_layout": "OIHW4o"}, (1, 4, 6, 6), (2, 4, 3, 3, 4), None),
        ({"groups": 4}, (1, 4, 6, 6), (4, 2, 3, 3), None),  # [channels, multiplier, kh, kw]
        ({"groups": 4}, (1, 4, 6, 6), (8, 1, 3, 3), (1, 1, 0, 1)),
    ],
    ids=str,
)
def test_where_the_channels_of_a_convolution_are(
    attrs: dict, x: tuple[int, ...], weight: tuple[int, ...], axes: tuple[int, ...] | None
) -> None:
    found = read_geometry(make_node("nn.conv2d", x, weight, **{**CONV, **attrs}))
    assert axes == (found and (found.out_axis, found.in_axis, found.weight_out, found.weight_in))


def test_matmuls_of_other_forms_have_no_geometry() -> None:
    assert read_geometry(make_node("matmul", (2, 4), (4, 6))) is not None
    assert read_geometry(make_node("matmul", (5, 2, 4), (4, 6))) is not None
    assert read_geometry(make_node("matmul", (5, 2, 4), (5, 4, 6))) is None
    assert read_geometry(make_node("matmul", (4,), (4, 6))) is None
    assert read_geometry(make_node("nn.matmul", (4, 2), (4, 6), transpose_a=True)) is None
    assert read_geometry(make_node("matmul", None, (4, 6))) is None
