"""Attention written out in ops is one node, in the forms that exporters write; each with a twin."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from building import Builder, multiply
from convoy.graph import Graph
from convoy.graph.ops import Attention, Binary, Reshape, Slice, Softmax, Transpose, Unary
from convoy.graph.reference import run
from convoy.graph.rewrite import simplify
from convoy.graph.sizes import open_size
from convoy.graph.verify import verify
from convoy.graph.views import View
from graph.simplified import ops, simplified

H, M, N, D, E = 3, 5, 7, 4, 6
"""Heads, queries, keys, and the lengths of a query and a value."""


def only(graph: Graph) -> Attention:
    (node,) = graph.nodes
    assert isinstance(node, Attention)
    return node


def binary(b: Builder, kind: str, x: str, y: Any) -> str:
    return b.add(Binary, x, y if isinstance(y, str) else b.constant(y), kind=kind)


def heads(b: Builder, x: str, perm: tuple[int, ...] = (0, 2, 1, 3), count: int = H) -> str:
    """[1, N, H·D] -> [1, N, H, D] -> [1, H, N, D], or in another order."""
    _, n, width = b.tensors[x].shape
    return b.add(Transpose, b.add(Reshape, x, shape=(1, n, count, width // count)), perm=perm)


def joined(b: Builder, x: str) -> str:
    """[1, H, M, E] -> [1, M, H·E]"""
    _, count, m, e = b.tensors[x].shape
    return b.add(Reshape, b.add(Transpose, x, perm=(0, 2, 1, 3)), shape=(1, m, count * e))


def inputs() -> Builder:
    return Builder([1, M, H * D], [1, N, H * D], [1, N, H * E])


def scores(b: Builder) -> str:
    return multiply(b, heads(b, "x0"), heads(b, "x1", (0, 2, 3, 1)))


def values(b: Builder, made: str, axis: int = 3) -> str:
    return joined(b, multiply(b, b.add(Softmax, made, axis=axis), heads(b, "x2")))


def test_plain() -> None:
    # join(product(softmax(product(q, k) / 2), v))  =>  attention(q, k, v)
    b = inputs()
    node = only(simplified(b, values(b, binary(b, "div", scores(b), 2.0))))
    assert node.inputs == ("x0", "x1", "x2")
    assert (node.q, node.k) == (View((H, M, D), (D, H * D, 1)), View((H, N, D), (D, H * D, 1)))
    assert (node.v, node.y) == (View((H, N, E), (E, H * E, 1)), View((H, M, E), (E, H * E, 1)))
    assert (node.scale, node.mask, node.diagonal) == (0.5, None, None)


def test_scale_before_the_heads_as_torch_writes_it() -> None:
    # √scale on both sides, before and behind the transposes
    b = inputs()
    q = heads(b, binary(b, "mul", "x0", 0.5**0.5))
    k = binary(b, "mul", heads(b, "x1", (0, 2, 3, 1)), 0.5**0.5)
    node = only(simplified(b, values(b, multiply(b, q, k))))
    assert node.scale == pytest.approx(0.5)


def test_packed_thirds() -> None:
    # one tensor of queries, keys and values side by side, cut before and behind the transpose
    b = Builder([1, M, 3 * H * D])
    packed = b.add(
        Transpose, b.add(Reshape, "x0", shape=(1, M, 3, H, D)), perm=(0, 2, 3, 1, 4)
    )  # fmt: skip
    q, k, v = (
        b.add(Reshape, b.add(Slice, packed, axis=1, begin=i, end=i + 1), shape=(1, H, M, D))
        for i in range(3)
    )
    made = multiply(b, q, b.add(Transpose, k, perm=(0, 1, 3, 2)))
    y = joined(b, multiply(b, b.add(Softmax, made, axis=3), v))
    node = only(simplified(b, y))
    assert node.inputs == ("x0",) * 3
    assert [view.offset for view in (node.q, node.k, node.v)] == [0, H * D, 2 * H * D]
    b = Builder([1, M, 3 * H * D])
    thirds = [b.add(Slice, "x0", axis=2, begin=i * H * D, end=(i + 1) * H * D) for i in range(3)]
    made = multiply(b, heads(b, thirds[0]), heads(b, thirds[1], (0, 2, 3, 1)))
    y = joined(b, multiply(b, b.add(Softmax, made, axis=3), heads(b, thirds[2])))
    assert replace(only(simplified(b, y)), output=node.output) == node


def test_heads_folded_into_a_batch_of_products() -> None:
    # [1, H, M, D] as [1·H, M, D] and back, as for bmm
    b = Builder([1, H, M, D], [1, H, N, D], [1, H, N, E])
    q, k, v = (b.add(Reshape, f"x{i}", shape=(1, *b.tensors[f"x{i}"].shape[1:])) for i in range(3))
    made = multiply(b, q, b.add(Transpose, k, perm=(0, 1, 3, 2)))
    wide = b.add(Reshape, b.add(Softmax, made, axis=3), shape=(1, H, M, N))
    only(simplified(b, multiply(b, wide, v)))


def test_one_head() -> None:
    b = Builder([1, M, D], [1, N, D], [1, N, E])
    made = multiply(b, "x0", b.add(Transpose, "x1", perm=(0, 2, 1)))
    node = only(simplified(b, multiply(b, b.add(Softmax, made, axis=2), "x2")))
    assert node.q == View((M, D), (D, 1))


def test_scores_of_transposed_products() -> None:
    # channels first: q [D, M], k [D, N], v [E, N], y [E, M] = v · softmax(kᵀq over keys)
    b = Builder([1, H, D, M], [1, H, D, N], [1, H, E, N])
    made = multiply(b, b.add(Transpose, "x1", perm=(0, 1, 3, 2)), "x0")
    node = only(simplified(b, multiply(b, "x2", b.add(Softmax, made, axis=2))))
    assert node.inputs == ("x0", "x1", "x2")
    assert node.y == View((H, M, E), (E * M, 1, M))


def test_a_group_of_heads_shares_its_keys() -> None:
    b = Builder([1, 6, M, D], [1, 2, N, D], [1, 2, N, E])
    q = b.add(Reshape, "x0", shape=(1, 2, 3, M, D))
    k = b.add(Transpose, b.add(Reshape, "x1", shape=(1, 2, 1, N, D)), perm=(0, 1, 2, 4, 3))
    v = b.add(Reshape, "x2", shape=(1, 2, 1, N, E))
    y = multiply(b, b.add(Softmax, multiply(b, q, k), axis=4), v)
    node = only(simplified(b, b.add(Reshape, y, shape=(1, 6, M, E))))
    assert node.k == View((2, 3, N, D), (N * D, 0, D, 1))


@pytest.mark.parametrize("likely", [2, 3, 20])
def test_a_group_of_heads_of_any_number_of_images(likely: int) -> None:
    # scores of [2·n, 3] heads, which may be more or fewer than 2, and values of [n, 2, 3]
    n = open_size("n", likely)
    b = Builder([n, 6, M, D], [n, 2, N, D], [n, 2, N, E])
    q = b.add(Reshape, "x0", shape=(n, 2, 3, M, D))
    k = b.add(Transpose, b.add(Reshape, "x1", shape=(n, 2, 1, N, D)), perm=(0, 1, 2, 4, 3))
    v = b.add(Reshape, "x2", shape=(n, 2, 1, N, E))
    y = b.add(Reshape, multiply(b, b.add(Softmax, multiply(b, q, k), axis=4), v), shape=(n, 6, M, E))
    y = b.add(Reshape, b.add(Transpose, y, perm=(0, 2, 1, 3)), shape=(n, M, 6 * E))
    after = simplify(b.graph(y))
    verify(after)
    node = only(after)
    assert node.k == View((n, 2, 3, N, D), (2 * N * D, N * D, 0, D, 1))


MASKS = {
    "each score": (1, 1, M, N),
    "each head": (1, H, M, N),
    "without heads": (M, N),
    "keys": (1, 1, 1, N),
    "queries": (M, 1),
}


def test_a_constant_of_each_query_is_no_mask() -> None:
    b = inputs()
    made = binary(b, "add", scores(b), b.weight(M, 1))
    assert only(simplified(b, values(b, made))).mask is None


@pytest.mark.parametrize(
    ("shape", "computed"),
    [(shape, True) for shape in MASKS.values()] + [(s, False) for s in MASKS.values() if s != (M, 1)],
)
def test_a_mask_is_added(shape: tuple[int, ...], computed: bool) -> None:
    b = Builder([1, M, H * D], [1, N, H * D], [1, N, H * E], *([shape] if computed else []))
    mask = "x3" if computed else b.weight(*shape)
    node = only(simplified(b, values(b, binary(b, "add", binary(b, "mul", scores(b), 0.5), mask))))
    assert node.mask is not None
    assert (node.inputs[3], node.scale, node.mask.shape) == (mask, 0.5, (H, M, N))
    b = Builder([1, M, H * D], [1, N, H * D], [1, N, H * E], *([shape] if computed else []))
    mask = "x3" if computed else b.weight(*shape)
    assert only(simplified(b, values(b, binary(b, "add", mask, scores(b))))).scale == 1.0


def test_a_mask_that_is_scaled_with_the_scores_stays() -> None:
    b = inputs()
    made = binary(b, "mul", binary(b, "add", scores(b), b.weight(M, N)), 0.5)
    assert ops(simplified(b, values(b, made))) == ["product", "add", "mul", "softmax", "product"]


def test_several_masks_are_one() -> None:
    # windows of an image: the heads' bias, then a mask of each window, with a reshape between
    b = Builder([1, 8, M, D])  # 4 windows of 2 heads
    made = multiply(b, "x0", b.add(Transpose, "x0", perm=(0, 1, 3, 2)))
    bias = binary(b, "add", b.add(Reshape, made, shape=(1, 4, 2, M, M)), b.weight(1, 2, M, M))
    masked = binary(b, "add", bias, b.weight(4, 1, M, M))
    y = multiply(b, b.add(Softmax, b.add(Reshape, masked, shape=(1, 8, M, M)), axis=3), "x0")
    assert only(simplified(b, y)).mask == View((8, M, M), (M * M, M, 1))
    b = Builder([1, M, H * D], [1, N, H * D], [1, N, H * E], [1, 1, 1, N])
    made = binary(b, "add", binary(b, "add", scores(b), b.weight(1, H, M, N)), "x3")
    assert ops(simplified(b, values(b, made))) == ["add", "attention"]


def test_a_mask_that_makes_more_scores_stays() -> None:
    b = Builder([1, 1, M, D], [1, 1, D, N], [1, H, N, E])
    made = binary(b, "add", multiply(b, "x0", "x1"), b.weight(1, H, 1, 1))
    assert ops(simplified(b, multiply(b, b.add(Softmax, made, axis=3), "x2")))[1] == "add"


def triangle(m: int, n: int, diagonal: int, low: float) -> np.ndarray:
    return np.where(np.tri(m, n, diagonal, dtype=bool), 0, low)


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min])
@pytest.mark.parametrize("diagonal", [0, 2])
def test_a_triangle_is_causal(low: float, diagonal: int) -> None:
    b = inputs()
    made = binary(b, "add", scores(b), triangle(M, N, diagonal, low)[None, None])
    node = only(simplified(b, values(b, made)))
    assert (node.mask, node.diagonal) == (None, diagonal)
    assert len(node.inputs) == 3


def test_what_is_no_triangle_is_a_mask() -> None:
    holed = triangle(M, N, 0, -np.inf)
    holed[3, 1] = -np.inf
    other_heads = np.stack([triangle(M, N, i, -np.inf) for i in range(H)])
    for mask in (holed, other_heads, triangle(M, N, 0, -10000.0), triangle(M, N, 0, -np.inf) + 1):
        b = inputs()
        node = only(simplified(b, values(b, binary(b, "add", scores(b), mask))))
        assert (node.diagonal, len(node.inputs)) == (None, 4)
    b = inputs()  # the first query sees no key
    graph = simplify(b.graph(values(b, binary(b, "add", scores(b), triangle(M, N, -1, -np.inf)))))
    assert only(graph).diagonal is None


@pytest.mark.parametrize("low", [-np.inf, np.finfo(np.float32).min])
def test_scores_that_are_replaced_are_masked(low: float) -> None:
    # where(seen, scores, -inf)  =>  a mask, or a causal attention
    for seen in (np.tri(M, N, dtype=bool), np.arange(N) != 3):
        b = inputs()
        fixed = b.constant(np.where(seen, np.nan, low))
        node = only(simplified(b, values(b, b.add(Binary, fixed, scores(b), kind="coalesce"))))
        assert (node.diagonal, node.mask is None) == ((0, True) if seen.ndim == 2 else (None, False))


def test_scores_that_are_replaced_by_others_stay() -> None:
    b = inputs()
    fixed = b.constant(np.where(np.arange(N) != 3, np.nan, 0.5))
    graph = simplified(b, values(b, b.add(Binary, fixed, scores(b), kind="coalesce")))
    assert ops(graph) == ["product", "coalesce", "softmax", "product"]


@pytest.mark.parametrize("number", [0.0, 1.0])
def test_powers_that_become_zeros_make_it_safe(number: float) -> None:
    b = inputs()
    mask = b.constant(np.where(np.arange(M)[:, None] == 2, -np.inf, 0) * np.ones(N))
    powers = b.add(Softmax, binary(b, "add", scores(b), mask), axis=3)
    made = binary(b, "coalesce", powers, number)
    graph = simplified(b, joined(b, multiply(b, made, heads(b, "x2"))))
    assert number or only(graph).safe
    assert not number or "attention" not in ops(graph)


@pytest.mark.parametrize("kind", ["mul", "div"])
@pytest.mark.parametrize("split", [False, True])
def test_scales_of_heads_multiply_queries(kind: str, split: bool) -> None:
    # softmax(product(q, k) · c + mask), one c a head  =>  attention(q · c, k, v, mask)
    b = Builder([1, H, M, D], [1, N, H * D], [1, N, H * E]) if split else inputs()
    q = "x0" if split else heads(b, "x0")
    of_heads = multiply(b, q, heads(b, "x1", (0, 2, 3, 1)))
    scaled = binary(b, kind, of_heads, b.weight(H, 1, 1))
    after = simplified(b, values(b, binary(b, "add", scaled, b.weight(1, H, M, N))))
    assert ops(after) == [kind, "attention"]
    assert after.constants[after.nodes[0].inputs[1]].size == (H if split else H * D)


def test_scales_of_heads_in_any_batch() -> None:
    b = Builder([1, M, H * D], [1, N, H * D], [1, N, H * E], batch=None)
    before = b.graph(values(b, binary(b, "mul", scores(b), b.weight(1, H, 1, 1))))
    after = simplify(before)
    verify(after)
    assert ops(after) == ["mul", "attention"]
    arrays = b.arrays(3)
    np.testing.assert_allclose(run(after, arrays)[0], run(before, arrays)[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("number", [0.0, np.inf, np.nan])
def test_scales_of_heads_that_are_no_numbers_to_divide_by_stay(number: float) -> None:
    b = inputs()
    numbers = np.array([1.0, number, 2.0], np.float32).reshape(H, 1, 1)
    before = b.graph(values(b, binary(b, "div", scores(b), numbers)))
    assert "attention" not in ops(simplify(before))


@pytest.mark.parametrize("shape", [(1, 1, 1, N), (1, 1, M, 1), (1, H, M, N), (H, 1, N)])
def test_scales_of_others_than_heads_stay(shape: tuple[int, ...]) -> None:
    b = inputs()
    after = simplified(b, values(b, binary(b, "mul", scores(b), b.weight(*shape))))
    assert "attention" not in ops(after)


def test_a_mask_of_zeros_is_none() -> None:
    b = inputs()
    node = only(simplified(b, values(b, binary(b, "add", scores(b), np.zeros((1, 1, 1, N))))))
    assert (node.mask, node.inputs) == (None, ("x0", "x1", "x2"))


# Twins ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [1, 2])
def test_a_softmax_along_another_axis_is_none(axis: int) -> None:
    b = inputs()
    assert ops(simplified(b, values(b, scores(b), axis))) == ["product", "softmax", "product"]


def test_of_as_many_queries_as_keys_too() -> None:
    # softmax over queries, then summed over keys: shapes say nothing, strides do
    b = Builder([1, H, M, D], [1, H, M, D], [1, H, M, E])
    made = multiply(b, "x0", b.add(Transpose, "x1", perm=(0, 1, 3, 2)))
    y = multiply(b, b.add(Softmax, made, axis=2), "x2")
    assert ops(simplified(b, y)) == ["product", "softmax", "product"]


def test_scores_that_another_reads_stay() -> None:
    b = inputs()
    made = scores(b)
    assert "attention" not in ops(simplified(b, values(b, made), b.add(Unary, made, kind="relu")))
    b = inputs()
    made = scores(b)
    assert "attention" not in ops(simplified(b, values(b, made), made))
    b = inputs()
    powers = b.add(Softmax, scores(b), axis=3)
    y = joined(b, multiply(b, powers, heads(b, "x2")))
    assert "attention" not in ops(simplified(b, y, powers))


@pytest.mark.parametrize("place", ["scores", "powers"])
def test_another_op_between_stays(place: str) -> None:
    b = inputs()
    made = scores(b)
    made = b.add(Unary, made, kind="tanh") if place == "scores" else made
    powers = b.add(Softmax, made, axis=3)
    powers = binary(b, "mul", powers, b.weight(1, 1, M, N)) if place == "powers" else powers
    y = joined(b, multiply(b, powers, heads(b, "x2")))
    assert "attention" not in ops(simplified(b, y))


def test_a_logarithm_of_a_softmax_is_none() -> None:
    b = inputs()
    y = joined(b, multiply(b, b.add(Softmax, scores(b), axis=3, log=True), heads(b, "x2")))
    assert "attention" not in ops(simplified(b, y))


def test_heads_in_another_order_are_the_same_attention() -> None:
    # what is [heads, windows] in one product is [windows, heads] in the other
    b = Builder([1, 2, 3, M, D], [1, 2, 3, D, N], [1, 3, 2, N, E])
    powers = b.add(Softmax, multiply(b, "x0", "x1"), axis=4)
    y = multiply(b, b.add(Transpose, powers, perm=(0, 2, 1, 3, 4)), "x2")
    assert only(simplified(b, y)).q.shape == (3, 2, M, D)


def test_powers_of_which_some_are_summed_stay() -> None:
    b = Builder([1, H, M, D], [1, H, D, N], [1, H, N - 1, E])
    powers = b.add(Softmax, multiply(b, "x0", "x1"), axis=3)
    y = multiply(b, b.add(Slice, powers, axis=3, begin=0, end=N - 1), "x2")
    assert "attention" not in ops(simplified(b, y))
    b = Builder([1, H, M, D], [1, H, D, N], [1, H, N, E])
    powers = b.add(Softmax, multiply(b, "x0", "x1"), axis=3)
    y = multiply(b, b.add(Slice, powers, axis=2, begin=1, end=3), "x2")
    assert "attention" not in ops(simplified(b, y))


def test_a_batch_is_no_axis_of_an_attention() -> None:
    b = Builder([1, M, H * D], [1, N, H * D], [1, N, H * E], batch=None)
    before = b.graph(values(b, scores(b)))
    after = simplify(before)
    verify(after)
    only(after)
    arrays = b.arrays(3)
    np.testing.assert_allclose(run(after, arrays)[0], run(before, arrays)[0], rtol=1e-4, atol=1e-6)
