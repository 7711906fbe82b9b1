"""Ops that draw random numbers: their distributions, and which draws are alike."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax

from convoy.errors import ModelError
from convoy.relax.importer import load

COUNT = 20_000
SIGMAS = 6
"""A mean of so many numbers is off by more once in 500 million draws."""


def drawing(*nodes: onnx.NodeProto, kind: int = TensorProto.FLOAT, columns: int = COUNT) -> onnx.ModelProto:
    """Nodes that read ``x`` [n, columns]; their outputs are the model's."""
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", kind, ["n", columns])],
        [helper.make_tensor_value_info(name, 0, None) for node in nodes for name in node.output],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def make(op: str, name: str = "y", **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op, ["x"], [name], name=name, **attributes)


def expect_mean(numbers: np.ndarray, mean: float, deviation: float) -> None:
    assert abs(numbers.mean(dtype=np.float64) - mean) < SIGMAS * deviation / sqrt(numbers.size)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16])
def test_uniform_numbers_fill_their_range(run_tvm, kind: int) -> None:
    x = np.zeros((2, COUNT), helper.tensor_dtype_to_np_dtype(kind))
    (y,) = run_tvm(load(drawing(make("RandomUniformLike", low=-1.0, high=3.0), kind=kind)), x)
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    assert y.min() >= -1
    assert y.max() <= 3
    expect_mean(y, 1, 4 / sqrt(12))
    counts, _ = np.histogram(y.astype(np.float64), 16, (-1, 3))
    assert (abs(counts - y.size / 16) < SIGMAS * sqrt(y.size / 16)).all()


def test_normal_numbers_have_their_mean_and_deviation(run_tvm) -> None:
    (y,) = run_tvm(load(drawing(make("RandomNormalLike", mean=2.0, scale=0.5))), np.zeros((2, COUNT), "f4"))
    z = (y.astype(np.float64) - 2) / 0.5
    expect_mean(z, 0, 1)
    expect_mean(z**2, 1, sqrt(2))
    expect_mean(z**3, 0, sqrt(15))
    expect_mean(z**4, 3, sqrt(96))
    for other in (z[:, 1:] * z[:, :-1], z[1:] * z[:-1]):  # neighbours know nothing of each other
        expect_mean(other, 0, 1)


def test_shapes_and_types_of_attributes(run_tvm) -> None:
    nodes = [
        helper.make_node("RandomUniform", [], ["u"], shape=[3, 5]),
        helper.make_node("RandomNormal", [], ["n"], shape=[7], dtype=TensorProto.DOUBLE),
        make("RandomUniformLike", "h", dtype=TensorProto.FLOAT16),
    ]
    u, n, h = run_tvm(load(drawing(*nodes, columns=4)), np.zeros((2, 4), "f4"))
    assert (u.shape, u.dtype) == ((3, 5), np.float32)
    assert (n.shape, n.dtype) == ((7,), np.float64)
    assert (h.shape, h.dtype) == ((2, 4), np.float16)
    for drawn in (u, n, h):
        assert len(np.unique(drawn)) > 4


def test_a_seed_draws_the_same_and_nothing_else_does(run_tvm) -> None:
    names = ["a", "b", "seeded", "other"]
    nodes = [
        make("RandomNormalLike", "a"),
        make("RandomNormalLike", "b"),
        make("RandomNormalLike", "seeded", seed=3.0),
        make("RandomNormalLike", "other", seed=4.0),
    ]
    module = load(drawing(*nodes, columns=64))
    x = np.zeros((2, 64), "f4")
    first, second = (dict(zip(names, run_tvm(module, x), strict=True)) for _ in range(2))
    np.testing.assert_array_equal(first["seeded"], second["seeded"])
    np.testing.assert_array_equal(first["other"], second["other"])
    drawn = [first["a"], first["b"], second["a"], second["b"], first["seeded"], first["other"]]
    assert len({numbers.tobytes() for numbers in drawn}) == len(drawn)


def test_steps_of_a_loop_draw_anew_with_a_seed_too(run_tvm) -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22]>
        walk (float[8] x, int64 steps) => (float[8] y, float[S,8] z) {
            y, z = Loop (steps, , x) <body = step
            (int64 i, bool c, float[8] at) => (bool d, float[8] next, float[8] noise) {
                d = Identity (c)
                noise = RandomNormalLike <seed = 1.0> (at)
                next = Add (at, noise)
            }>
        }"""
    )
    x = np.zeros(8, np.float32)
    y, z = run_tvm(load(model), x, np.array(3))
    assert len({step.tobytes() for step in z}) == 3
    np.testing.assert_allclose(y, z.sum(0), rtol=1e-5)


def test_bernoulli_is_1_as_often_as_it_says(run_tvm) -> None:
    nodes = [make("Bernoulli", "y"), make("Bernoulli", "truth", dtype=TensorProto.BOOL)]
    x = np.array([[0.3], [0.0], [1.0]], np.float32).repeat(COUNT, 1)
    y, truth = run_tvm(load(drawing(*nodes)), x)
    assert y.dtype == np.float32
    assert truth.dtype == np.bool_
    for drawn in (y, truth):
        expect_mean(drawn[0], 0.3, sqrt(0.21))
        assert not drawn[1].any()
        assert drawn[2].all()


def test_multinomial_takes_classes_as_often_as_they_are_likely(run_tvm) -> None:
    chances = np.array([[0.2, 0.5, 0.3], [0, 1, 0]])
    with np.errstate(divide="ignore"):
        x = np.log(chances).astype(np.float32)
    module = load(drawing(make("Multinomial", sample_size=COUNT, dtype=TensorProto.INT64), columns=3))
    (y,) = run_tvm(module, x)
    assert y.dtype == np.int64
    assert y.shape == (2, COUNT)
    for drawn, likely in zip(y, chances, strict=True):
        for k, chance in enumerate(likely):
            expect_mean(drawn == k, chance, sqrt(chance * (1 - chance)) or 1e-9)


def test_a_draw_of_whole_numbers_is_refused() -> None:
    model = drawing(make("RandomNormalLike"), kind=TensorProto.INT64)
    with pytest.raises(
        ModelError, match="expected it to draw floats, got int64; give it a dtype of floats"
    ):
        load(model)


def test_what_a_seed_draws_is_not_kept_as_a_constant() -> None:
    node = helper.make_node("RandomNormal", [], ["y"], shape=[1 << 20, 1 << 20], seed=1.0)
    folded = relax.transform.FoldConstant()(load(drawing(node)))
    assert "call_dps_packed" in folded["main"].script()
