"""Weights of nine bits: two bytes and twice the data where a zero point takes weights out of int8."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Concat, Conv2d, MatMul, Node
from convoy.graph.reference import run
from convoy.graph.verify import verify
from convoy.graph.weights import quantize_weights
from convoy.graph.wide import halve_wide_weights
from convoy.options import Options
from convoy.target import MACHINES, host
from quantising import Quantised, agree


def convolutions(zero: int = 120, groups: int = 1) -> Graph:
    """Two that read the same data, and one behind them; weights from 1 to 253, less a zero point."""
    q = Quantised()
    x = q.bytes(q.input(1, 20, 9, 7), 0.03, 117)
    y = q.bytes(q.unary(q.conv(x, 24, 3, dtype="uint8", zero=zero, groups=groups)), 0.05)
    z = q.bytes(q.conv(x, 12, dtype="uint8", zero=zero, stride=(2, 2), groups=groups), 0.04, 90)
    return q.graph(y, z, q.bytes(q.conv(y, 40, dtype="uint8", zero=zero, groups=groups), 0.03, 128))


def product(zero: int) -> Graph:
    q = Quantised()
    x = q.bytes(q.input(6, 33), 0.03, 128)
    w = q.random.integers(0, 255, (33, 40)).astype(np.uint8)
    scale, zeros = np.full(40, 0.001, np.float32), np.full(40, zero, np.uint8)
    names = (x, q.b.dequantize(q.b.constant(w), scale, zeros, 1))
    return q.graph(q.bytes(q.op(MatMul, *names, shape=(6, 40)), 0.02, 128))


def always(_: Node, __: Graph) -> bool:
    return True


def draw(graph: Graph) -> list[np.ndarray]:
    generator = np.random.default_rng(3)
    return [generator.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs]


def anchors(graph: Graph) -> list[tuple[int, ...]]:
    return [graph.shape(n.inputs[1]) for n in graph.nodes if isinstance(n, Conv2d | MatMul)]


@pytest.mark.parametrize("graph", [convolutions(), product(100), product(3)], ids=["conv", "100", "3"])
def test_they_become_two_bytes_each_and_the_same_number(graph: Graph) -> None:
    made = halve_wide_weights(graph, always)
    verify(made)
    depth = 1 if len(anchors(graph)[0]) == 4 else 0
    for before, after in zip(anchors(graph), anchors(made), strict=True):
        assert after == tuple(n * 2 if i == depth else n for i, n in enumerate(before))
    for one, other in zip(*(run(g, draw(graph), np.float64) for g in (graph, made)), strict=True):
        np.testing.assert_array_equal(one, other)


def test_who_reads_the_same_data_reads_them_twice_together() -> None:
    assert sum(isinstance(node, Concat) for node in halve_wide_weights(convolutions(), always).nodes) == 2


def test_who_reads_the_same_data_along_other_axes_reads_them_twice_along_each() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 12, 6, 8), 0.03, 117)
    w = q.b.constant(q.random.integers(0, 255, (8, 16)).astype(np.uint8))
    weight = q.b.dequantize(w, np.full(16, 0.001, np.float32), np.full(16, 100, np.uint8), 1)
    y = q.bytes(q.conv(x, 8, 3, dtype="uint8", zero=100), 0.05)
    graph = q.graph(y, q.bytes(q.op(MatMul, x, weight, shape=(1, 12, 6, 16)), 0.02, 128))
    made = halve_wide_weights(graph, always)
    verify(made)
    assert sum(isinstance(node, Concat) for node in made.nodes) == 2
    for one, other in zip(*(run(g, draw(graph), np.float64) for g in (graph, made)), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "graph",
    [convolutions(128), convolutions(groups=4), product(128)],
    ids=["they fit int8", "groups", "a product that fits"],
)
def test_others_stay(graph: Graph) -> None:
    assert halve_wide_weights(graph, always).nodes == graph.nodes


def test_a_step_that_is_no_sum_of_two_bytes_stays() -> None:
    q = Quantised()
    x, w = q.bytes(q.input(2, 4), 0.03), np.full((4, 8), 255, np.uint8)
    w[0] = 0
    one, none = np.full(8, 0.01, np.float32), np.zeros(8, np.uint8)
    names = (x, q.b.dequantize(q.b.constant(w), one, none, 1))
    graph = q.graph(q.op(MatMul, *names, shape=(2, 8)))
    assert halve_wide_weights(graph, always).nodes == graph.nodes


def test_data_with_a_scale_for_each_channel_stay() -> None:
    q = Quantised()
    x, scale = q.input(1, 4, 5, 5), np.linspace(0.01, 0.05, 4, dtype=np.float32)
    zero = np.full(4, 7, np.uint8)
    x = q.b.dequantize(q.b.quantize(x, scale, zero, 1), scale, zero, 1)
    graph = q.graph(q.conv(x, 8, dtype="uint8", zero=120))
    assert halve_wide_weights(graph, always).nodes == graph.nodes


@pytest.mark.slow
@pytest.mark.parametrize("graph", [convolutions(), product(100)], ids=["conv", "product"])
def test_every_way_of_multiplying_bytes_agrees(graph: Graph) -> None:
    agree(halve_wide_weights(graph, always), draw(graph))


@pytest.mark.parametrize(
    ("target", "kernel", "precision"),
    [("znver4", 1, "int8"), ("haswell", 1, "float32"), ("haswell", 3, "float32")],
)
def test_they_are_bytes_where_twice_the_products_are_quicker(
    target: str, kernel: int, precision: str
) -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 128, 28, 28), 0.03, 117)
    graph = q.graph(q.bytes(q.conv(x, 128, kernel, dtype="uint8", zero=120), 0.05))
    made = backend.generate(graph, None, MACHINES[target], Options())
    assert {d.precision for d in made.report.details if d.flops} == {precision}


@pytest.mark.slow
def test_a_bias_of_integers_stays_with_its_convolution() -> None:
    # as quantisers write them: in steps of data times weight
    q = Quantised()
    x = q.bytes(q.input(1, 64, 14, 14), 0.03, 117)
    w = q.b.constant(q.random.integers(0, 255, (64, 64, 1, 1)).astype(np.uint8))
    scale = np.full(64, 0.001, np.float32)
    weight = q.b.dequantize(w, scale, np.full(64, 100, np.uint8))
    steps = q.b.constant(q.random.integers(-9999, 9999, 64).astype(np.int32))
    bias = q.b.dequantize(steps, np.float32(0.03) * scale, np.zeros(64, np.int32))
    y = q.bytes(q.op(Conv2d, x, weight, bias, shape=(1, 64, 14, 14)), 0.03, 128)
    graph = q.graph(y)
    report = backend.generate(graph, None, MACHINES["znver4"], Options()).report
    assert {d.precision for d in report.details if d.flops} == {"int8"}
    (found,), (wanted,) = backend.load(graph, host(), Options())(*draw(graph)), run(graph, draw(graph))
    assert np.abs(found - wanted).max() < 0.0301


@pytest.mark.parametrize(("depth", "copies"), [(129, 0), (130, 2)])
def test_what_no_kernel_of_bytes_takes_stays_as_it_is(depth: int, copies: int) -> None:
    # twice an odd depth is not a multiple of four
    q = Quantised()
    x, w = q.bytes(q.input(64, depth), 0.03, 117), q.random.integers(0, 255, (depth, 128)).astype(np.uint8)
    scale, zeros = np.full(128, 0.001, np.float32), np.full(128, 100, np.uint8)
    weight = q.b.dequantize(q.b.constant(w), scale, zeros, 1)
    graph = q.graph(q.bytes(q.op(MatMul, x, weight, shape=(64, 128)), 0.02, 128))
    report = backend.generate(graph, None, MACHINES["znver4"], Options()).report
    assert sum("concat" in step for step in report.steps) == copies
    assert {d.precision for d in report.details if d.flops} == {"int8" if copies else "float32"}


def test_weights_that_were_folded_to_floats_are_known_again() -> None:
    from convoy.graph.quantised import dequantize_constants

    known = quantize_weights(dequantize_constants(convolutions()))
    assert anchors(halve_wide_weights(known, always)) == anchors(halve_wide_weights(convolutions(), always))
