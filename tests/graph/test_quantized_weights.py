"""graph/weights.py: weights that are multiples of a number become integers; no other weight does."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.graph import Graph
from convoy.graph.builder import Builder
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, MatMul, Node
from convoy.graph.quantised import dequantize, dequantize_constants
from convoy.graph.reference import run
from convoy.graph.verify import verify
from convoy.graph.weights import find_integers, quantize_weights

random = np.random.default_rng(3)


def integers(*shape: int, least: int = -127, most: int = 127) -> np.ndarray:
    return random.integers(least, most + 1, shape)


def scaled(whole: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Integers [O, ...] times a scale for each row, as ``Dequantize`` computes it."""
    return whole.astype(np.float32) * scale.astype(np.float32).reshape(-1, *(1,) * (whole.ndim - 1))


def same(weight: np.ndarray, axis: int = 0) -> None:
    found = find_integers(weight, axis)
    assert found is not None
    whole, scale, zero = found
    assert whole.min() >= -128
    assert whole.max() <= 127
    assert zero.min() >= -128
    assert zero.max() <= 127
    made = dequantize(whole, scale, zero, axis)
    np.testing.assert_allclose(made, weight, rtol=2.0**-21, atol=0)


@pytest.mark.parametrize("shape", [(64, 3, 7, 7), (32, 1, 3, 3), (5, 640), (7, 2), (3, 1)])
def test_multiples_of_a_scale_a_channel_are_integers_again(shape: tuple[int, ...]) -> None:
    same(scaled(integers(*shape), random.uniform(1e-4, 0.1, shape[0])))


def test_the_scale_itself_is_found_where_the_largest_byte_is_used() -> None:
    whole, scale = integers(20, 50), random.uniform(1e-4, 0.1, 20).astype(np.float32)
    whole[:, 7] = 127
    found = find_integers(scaled(whole, scale), 0)
    assert found is not None
    np.testing.assert_array_equal(found[0], whole)
    np.testing.assert_array_equal(dequantize(*found, 0), scaled(whole, scale))


def test_one_scale_for_a_whole_weight_is_found_in_each_channel() -> None:
    same(scaled(integers(40, 9, least=-128, most=127), np.full(40, 0.0173)))


def test_bytes_with_a_zero_point_are_integers_again() -> None:
    zero = integers(16, 1, least=0, most=255)
    weight = scaled(integers(16, 90, least=0, most=255) - zero, random.uniform(1e-3, 0.1, 16))
    same(weight)


@pytest.mark.parametrize("steps", [(-9, -158), (-149, -2, -31), (-255, -1), (158, 9), (255, 1), (255, 0)])
def test_a_channel_all_on_one_side_of_its_zero_point(steps: tuple[int, ...]) -> None:
    same(scaled(np.array([steps]), np.array([0.0142])))


def test_what_was_multiplied_into_a_channel_is_in_its_scale() -> None:
    # a batch norm folded in float64: each weight is rounded twice
    weight = scaled(integers(30, 4, 3, 3), random.uniform(1e-3, 0.1, 30)).astype(np.float64)
    same((weight * random.uniform(0.3, 3, (30, 1, 1, 1))).astype(np.float32))


def test_along_the_last_axis() -> None:
    same(np.ascontiguousarray(scaled(integers(10, 60), random.uniform(1e-3, 0.1, 10)).T), 1)


def test_channels_of_zeros_are_integers() -> None:
    same(scaled(integers(4, 20) * np.array([[1], [0], [1], [0]]), np.ones(4)))


@pytest.mark.parametrize("shape", [(64, 3, 3, 3), (1, 5), (8, 640)])
def test_other_weights_are_none(shape: tuple[int, ...]) -> None:
    assert find_integers(random.standard_normal(shape).astype(np.float32), 0) is None


def test_one_channel_that_is_no_multiple_is_enough() -> None:
    weight = scaled(integers(8, 64), np.full(8, 0.01))
    weight[5, 3] *= np.float32(1.00001)
    assert find_integers(weight, 0) is None


def test_more_steps_than_a_byte_has_are_none() -> None:
    assert find_integers(scaled(integers(8, 500, least=-300, most=300), np.full(8, 0.01)), 0) is None
    assert find_integers(np.float32([[np.inf, 1, 2, 3]]), 0) is None


def network(*, quantised: bool = True, bias: str = "multiples") -> Graph:
    """Anchors of all kinds on bytes, or floats."""
    b = Builder("images")
    x = b.input("x", (1, 8, 6, 6), "uint8" if quantised else "float32")
    step = np.float32([0.02])
    data = b.dequantize(x, step, np.uint8([100])) if quantised else x
    outs = []
    each = random.uniform(1e-3, 0.1, 4).astype(np.float32)

    def with_bias(weight: np.ndarray, scale: np.ndarray) -> tuple[str, str]:
        added = scaled(integers(4, 1, least=-9999, most=9999), step * scale)[:, 0]
        added = added if bias == "multiples" else added + 0.37 * step * scale
        return b.constant(weight), b.constant(added)

    w = scaled(integers(4, 8, 3, 3), each)
    outs.append(b.node(Conv2d, (data, *with_bias(w, each)), (1, 4, 4, 4)))
    wt = np.ascontiguousarray(scaled(integers(4, 8, 2, 2), each).swapaxes(0, 1))
    outs.append(b.node(ConvTranspose2d, (data, b.constant(wt)), (1, 4, 7, 7)))
    rows = b.reshape(x, (1, 8, 36))
    rows = b.dequantize(rows, step, np.uint8([100])) if quantised else rows
    wm = np.ascontiguousarray(scaled(integers(4, 36), each).T)
    outs.append(b.node(MatMul, (rows, *with_bias(wm, each)), (1, 8, 4)))
    return b.finish((x,), tuple(outs), None)


def weights(graph: Graph) -> list[tuple[Node | None, ...]]:
    """What makes the weight and bias of each anchor."""
    anchors = [n for n in graph.nodes if isinstance(n, Conv2d | ConvTranspose2d | MatMul)]
    return [tuple(graph.producer.get(name) for name in n.inputs[1:]) for n in anchors]


def test_anchors_on_bytes_have_weights_and_biases_of_integers() -> None:
    graph = network()
    found = quantize_weights(graph)
    verify(found)
    assert [[type(node) for node in made] for made in weights(found)] == [
        [Dequantize, Dequantize], [Dequantize], [Dequantize, Dequantize]
    ]  # fmt: skip
    types = {found.dtype(made.inputs[0]) for nodes in weights(found) for made in nodes if made}
    assert types == {"int8", "int32"}
    x = integers(2, 8, 6, 6, least=0, most=255).astype(np.uint8)
    for got, folded, want in zip(
        run(found, [x]), run(dequantize_constants(found), [x]), run(graph, [x]), strict=True
    ):
        np.testing.assert_array_equal(got, folded)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


def test_groups_of_a_transposed_convolution_share_scales() -> None:
    b = Builder("images")
    x = b.input("x", (1, 6, 5, 5), "uint8")
    data = b.dequantize(x, np.float32([0.02]), np.uint8([100]))
    each = random.uniform(1e-3, 0.1, 2).astype(np.float32)
    weight = np.ascontiguousarray(scaled(integers(2, 6, 3, 3), each).swapaxes(0, 1))
    bias = scaled(integers(6, 1, least=-9999, most=9999), np.float32(0.02) * np.tile(each, 3))[:, 0]
    y = b.node(ConvTranspose2d, (data, b.constant(weight), b.constant(bias)), (1, 6, 7, 7), groups=3)
    graph = b.finish((x,), (y,), None)
    found = quantize_weights(graph)
    verify(found)
    assert [[type(node) for node in made] for made in weights(found)] == [[Dequantize, Dequantize]]
    values = integers(1, 6, 5, 5, least=0, most=255).astype(np.uint8)
    (got,), (want,) = run(found, [values]), run(graph, [values])
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_a_bias_between_two_sums_stays_a_float() -> None:
    found = quantize_weights(network(bias="between"))
    verify(found)
    assert [[type(node) for node in made] for made in weights(found)] == [
        [Dequantize, type(None)], [Dequantize], [Dequantize, type(None)]
    ]  # fmt: skip


def test_anchors_on_floats_keep_their_weights() -> None:
    graph = network(quantised=False)
    assert quantize_weights(graph).nodes == graph.nodes
