"""The lowerings of the rows: a call becomes a graph that computes the op's definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from convoy.errors import LoweringError
from convoy.graph.ops import MatMul, Product
from convoy.graph.views import View
from convoy.ops.moves import runs
from convoy.ops.table import OF, ROWS
from ops.plain_door import Array, PlainOperands, Value, call_of, compute, const, lower, random

X = (1, 4, 6, 8)
x = random(*X)
WEIGHT = random(3, 4)
WINDOW = {"strides": (2,), "padding": (0, 0, 0, 0), "dilation": (1,)}


def normal(data: Array, axes: tuple[int, ...]) -> Array:
    centred = data - data.mean(axes, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 0.1)


def along(values: Any) -> Array:
    return np.asarray(values, np.float32).reshape(4, 1, 1)


SLOPES, GAMMA, BETA = (random(4) + shift for shift in (0, 1, 2))
SCALE = {"scale": True, "center": True, "epsilon": 0.1}
CASES: dict[str, tuple[str, tuple[int, ...], list[Any], dict[str, Any], Array]] = {
    "relu": ("nn.relu", X, [], {}, np.maximum(x, 0)),
    "relu6": ("nn.relu6", X, [], {}, np.clip(x, 0, 6)),
    "clip": ("clip", X, [], {"bounds": (-0.5, 0.25)}, np.clip(x, -0.5, 0.25)),
    "leaky_relu": ("nn.leaky_relu", X, [], {"alpha": 0.1}, np.where(x > 0, x, 0.1 * x)),
    "prelu, slopes of channels": (
        "nn.prelu", X, [SLOPES], {"axis": 1}, np.where(x > 0, x, along(SLOPES) * x),
    ),
    "prelu, one slope": ("nn.prelu", X, [np.full(4, 0.3)], {"axis": 1}, np.where(x > 0, x, 0.3 * x)),
    "subtract": ("subtract", X, [along(SLOPES)], {}, x - along(SLOPES)),
    "power of 3": ("power", X, [np.float32(3)], {}, x**3),
    "power of 4": ("power", X, [np.float32(4)], {}, x**4),
    "bias_add": ("nn.bias_add", X, [SLOPES], {"axis": 1}, x + along(SLOPES)),
    "dense": ("nn.dense", (1, 4, 6, 3), [random(3, 8)], {}, x @ random(3, 8).T),
    "matmul": ("matmul", (1, 4, 6, 3), [random(8, 3)], {}, x @ random(8, 3)),
    "matmul, transposed": (
        "nn.matmul", (1, 4, 6, 3), [random(3, 8)], {"transpose_b": True}, x @ random(3, 8).T,
    ),
    "mean": ("mean", (1, 4), [], {"axes": (2, 3), "keepdims": False}, x.mean((2, 3))),
    "max": ("max", (1, 1, 6, 8), [], {"axes": (1,), "keepdims": True}, x.max(1, keepdims=True)),
    "sum over no axes": ("sum", X, [], {"axes": (), "keepdims": False}, x),
    "variance": ("variance", (1, 4), [], {"axes": (2, 3), "keepdims": False}, x.var((2, 3))),
    "variance, unbiased, its mean given": (
        "variance",
        (1, 4),
        [x.mean((2, 3), keepdims=True)],
        {"axes": (2, 3), "keepdims": False, "unbiased": True},
        x.var((2, 3), ddof=1),
    ),
    "layer_norm of channels": (
        "nn.layer_norm",
        X,
        [GAMMA, BETA],
        {"norm_axes": (1,), **SCALE},
        normal(x, (1,)) * along(GAMMA) + along(BETA),
    ),
    "layer_norm without gamma": (
        "nn.layer_norm",
        X,
        [GAMMA, BETA],
        {"norm_axes": (1,), **SCALE, "scale": False},
        normal(x, (1,)) + along(BETA),
    ),
    "group_norm": (
        "nn.group_norm",
        X,
        [GAMMA, BETA],
        {"num_groups": 2, **SCALE},
        normal(x.reshape(1, 2, 2, 6, 8), (2, 3, 4)).reshape(X) * along(GAMMA) + along(BETA),
    ),
    "softmax": ("nn.softmax", X, [], {"axis": 1}, np.exp(x) / np.exp(x).sum(1, keepdims=True)),
    "reshape": ("reshape", (1, 24, 8), [], {}, x.reshape(1, 24, 8)),
    "transpose": ("transpose", (1, 6, 8, 4), [], {"permutation": (0, 2, 3, 1)}, x.transpose(0, 2, 3, 1)),
    "take one": ("take", (1, 6, 8), [np.int64(2)], {"axis": 1}, x[:, 2]),
    "take in four runs": (
        "take", (1, 4, 6, 2, 4), [np.array([[1, 3, 5, 4], [4, 0, 1, 2]])], {"axis": 3},
        x[:, :, :, [[1, 3, 5, 4], [4, 0, 1, 2]]],
    ),
    "strided_slice": ("strided_slice", (1, 2, 6, 8), [], {"slices": [(1, 1, 4, 2)]}, x[:, 1:4:2]),
    "strided_slice backwards": (
        "strided_slice", (1, 2, 6, 8), [], {"slices": [(1, 3, -1, -2)]}, x[:, 3::-2]
    ),
    "flip": ("flip", (1, 4, 6, 8), [], {"axis": 2}, x[:, :, ::-1]),
    "pad": (
        "nn.pad",
        (1, 4, 6, 11),
        [],
        {"pad_widths": ((0, 0), (0, 0), (0, 0), (1, 2)), "pad_mode": "constant", "pad_value": 0.5},
        np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 2)), constant_values=0.5),
    ),
    "mirror_pad": (
        "nn.mirror_pad",
        (1, 4, 8, 11),
        [],
        {"pad_widths": ((0, 0), (0, 0), (2, 0), (1, 2)), "pad_mode": "symmetric", "pad_value": None},
        np.pad(x, ((0, 0), (0, 0), (2, 0), (1, 2)), "symmetric"),
    ),
    "max_pool2d": (
        "nn.max_pool2d",
        (1, 4, 3, 4),
        [],
        {"pool_size": (2, 2), **WINDOW, "strides": (2, 2), "dilation": (1, 1)},
        x.reshape(1, 4, 3, 2, 4, 2).max((3, 5)),
    ),
    "global_avg_pool2d": ("nn.global_avg_pool2d", (1, 4, 1, 1), [], {}, x.mean((2, 3), keepdims=True)),
    "conv2d of one pixel": (
        "nn.conv2d",
        (1, 3, 3, 4),
        [WEIGHT[:, :, None, None]],
        {**WINDOW, "strides": (2, 2), "dilation": (1, 1), "groups": 1},
        np.einsum("oc,nchw->nohw", WEIGHT, x[:, :, ::2, ::2]),
    ),
    "depth_to_space": (
        "nn.depth_to_space",
        (1, 1, 12, 16),
        [],
        {"block_size": 2, "mode": "CRD"},
        x.reshape(1, 1, 2, 2, 6, 8).transpose(0, 1, 4, 2, 5, 3).reshape(1, 1, 12, 16),
    ),
    "upsampling": (
        "nn.upsampling",
        (1, 4, 12, 16),
        [],
        {"method": "nearest_neighbor", "align_corners": False},
        x.repeat(2, 2).repeat(2, 3),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_call_becomes_what_the_op_computes(case: str) -> None:
    name, shape, constants, attrs, expected = CASES[case]
    attrs = {"padding": (0, 0, 0, 0), "count_include_pad": False, **attrs}
    call = call_of(shape, Value(X), *map(const, constants), **attrs)
    np.testing.assert_allclose(compute(name, call, x), expected, rtol=1e-4, atol=1e-5)


def test_items_of_a_tuple() -> None:
    statistics = [GAMMA, BETA, SLOPES, GAMMA**2]
    gamma, beta, mean, variance = map(along, statistics)
    norm = call_of(X, Value(X), *map(const, statistics), axis=1, **SCALE)
    expected = (x - mean) / np.sqrt(variance + 0.1) * gamma + beta
    np.testing.assert_allclose(compute("nn.batch_norm", norm, x, item=0), expected, rtol=1e-4, atol=1e-5)
    split = call_of(X, Value(X), pieces=[(1, 0, 1, 1), (1, 1, 4, 1)])
    np.testing.assert_array_equal(compute("split", split, x, item=1), x[:, 1:])


def test_a_concat_reads_the_fields_of_its_tuple() -> None:
    data = Value(X)
    both = Value((), fields=(data, data))
    call = call_of((1, 8, 6, 8), both, axis=1)
    np.testing.assert_array_equal(compute("concat", call, x), np.concatenate([x, x], 1))


def test_indices_are_runs_of_slices() -> None:
    assert runs([3]) == [(3, 4, 1)]
    assert runs([0, 2, 4, 4, 3]) == [(0, 5, 2), (4, 2, -1)]
    assert runs([2, 1, 0]) == [(2, -1, -1)]
    for drawn in np.random.default_rng(0).integers(0, 6, (50, 7)).tolist():
        slices = [i for begin, end, step in runs(drawn) for i in range(begin, end, step)]
        assert slices == drawn


def test_an_activation_is_one_node_of_its_kind() -> None:
    for row in ROWS:
        if row.unary:
            (node,) = lower(row.relax or row.relay, call_of(X, Value(X))).nodes
            assert node.kind == row.unary


def test_a_lifted_region_has_an_axis_in_front() -> None:
    at = PlainOperands("lifted")
    lower_softmax = OF["nn.softmax"].lower
    assert lower_softmax is not None
    lower_softmax(at, call_of((3, 5), Value((3, 5)), axis=0))
    (node,) = at.build.nodes
    assert (node.axis, at.build.shape_of(node.output)) == (1, (1, 3, 5))


def test_a_product_is_one_of_a_weight_or_of_two_views() -> None:
    x = Value((1, 5))
    for second, kind in ((const(random(3, 5)), MatMul), (Value((3, 5)), Product)):
        (node,) = lower("nn.dense", call_of((1, 3), x, second)).nodes
        assert type(node) is kind
    (node,) = lower(
        "nn.matmul", call_of((5, 3), Value((2, 5)), const(random(2, 3)), transpose_a=True)
    ).nodes
    assert (node.a, node.b) == (View((5, 2), (1, 5)), View((2, 3), (3, 1)))


def test_a_statistic_that_is_no_constant_is_an_error() -> None:
    call = call_of((1, 3), Value((1, 3)), Value((3,)))
    with pytest.raises(LoweringError, match="expected a constant"):
        lower("nn.prelu", call)


def test_every_op_that_is_taken_has_one_lowering() -> None:
    assert all((row.lower is None) != (row.item is None) for row in ROWS if row.has_lowering)
    assert not any(row.has_lowering for row in (OF["sign"], OF["tile"]))
