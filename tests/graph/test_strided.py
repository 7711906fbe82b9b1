"""Products read and write through what moves elements; each form with a twin that must not fire."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder, multiply
from convoy.graph.ops import Binary, Product, Reshape, Slice, Softmax, Transpose, Unary
from convoy.graph.rewrite import simplify
from convoy.graph.views import View
from graph.simplified import ops, simplified


def heads(b: Builder, x: str, count: int, perm: tuple[int, ...] = (0, 2, 1, 3)) -> str:
    """[1, N, H·D] -> [1, N, H, D] -> [1, H, N, D]"""
    one, n, width = b.tensors[x].shape
    return b.add(Transpose, b.add(Reshape, x, shape=(one, n, count, width // count)), perm=perm)


def test_heads_are_views() -> None:
    # transpose(product(transpose(x), transpose(y)))  =>  product(x, y)
    b = Builder([1, 5, 12], [1, 7, 12])
    y = multiply(b, heads(b, "x0", 3), heads(b, "x1", 3, (0, 2, 3, 1)))
    y = b.add(Reshape, b.add(Transpose, y, perm=(0, 2, 1, 3)), shape=(1, 5, 21))
    graph = simplified(b, y)
    assert ops(graph) == ["product"]
    (node,) = graph.nodes
    assert isinstance(node, Product)
    assert node.a == View((3, 5, 4), (4, 12, 1))
    assert node.b == View((3, 4, 7), (4, 1, 12))
    assert node.y == View((3, 5, 7), (7, 21, 1))


def test_a_transpose_that_another_reads_too_stays() -> None:
    b = Builder([1, 5, 12], [1, 7, 12])
    x = heads(b, "x0", 3)
    y = multiply(b, x, heads(b, "x1", 3, (0, 2, 3, 1)))
    assert ops(simplified(b, y, b.add(Unary, x, kind="relu"))) == [
        "reshape",
        "transpose",
        "product",
        "relu",
    ]


def test_what_another_reads_too_is_made_as_it_was() -> None:
    # y and transpose(y) are both read: y is made in its own order
    b = Builder([1, 3, 4], [1, 4, 6])
    y = multiply(b, "x0", "x1")
    assert ops(simplified(b, y, b.add(Transpose, y, perm=(0, 2, 1)))) == ["product", "transpose"]
    b = Builder([1, 3, 4], [1, 4, 6])
    assert ops(simplified(b, b.add(Transpose, multiply(b, "x0", "x1"), perm=(0, 2, 1)))) == ["product"]


def test_thirds_of_a_packed_product_are_views() -> None:
    # qkv [1, N, 3·H·D] -> [1, N, 3, H, D] -> [1, 3, H, N, D] -> slices along axis 1
    b = Builder([1, 5, 3 * 2 * 4])
    packed = b.add(
        Transpose, b.add(Reshape, "x0", shape=(1, 5, 3, 2, 4)), perm=(0, 2, 3, 1, 4)
    )  # fmt: skip
    q, k = (b.add(Slice, packed, axis=1, begin=i, end=i + 1) for i in (0, 1))
    q, k = (b.add(Reshape, x, shape=(1, 2, 5, 4)) for x in (q, k))
    graph = simplified(b, multiply(b, q, b.add(Transpose, k, perm=(0, 1, 3, 2))))
    assert ops(graph) == ["product"]
    (node,) = graph.nodes
    assert isinstance(node, Product)
    assert (node.a, node.b) == (View((2, 5, 4), (4, 24, 1)), View((2, 4, 5), (4, 1, 24), 8))


def test_rows_that_are_cut_out_of_wider_ones_and_joined_are_no_view() -> None:
    # [1, 4, 6][:, :, 1:5] as [1, 2, 8]: eight neighbours of a row are four and four, six apart
    b = Builder([1, 4, 6], [1, 8, 3])
    x = b.add(Reshape, b.add(Slice, "x0", axis=2, begin=1, end=5), shape=(1, 2, 8))
    graph = simplified(b, multiply(b, x, "x1"))
    assert ops(graph) == ["slice", "product"]


def test_a_slice_of_what_is_made_stays() -> None:
    b = Builder([1, 3, 4], [1, 4, 6])
    y = b.add(Slice, multiply(b, "x0", "x1"), axis=2, begin=0, end=4)
    assert ops(simplified(b, y)) == ["product", "slice"]


@pytest.mark.parametrize("kind", ["mul", "div"])
def test_one_number_is_a_scale(kind: str) -> None:
    # product(x · 3, y · 5) / 2  =>  product(x, y), scaled
    b = Builder([1, 3, 4], [1, 4, 6])
    x, y = (b.add(Binary, name, b.constant(c), kind=kind) for name, c in (("x0", 3.0), ("x1", 5.0)))
    graph = simplified(b, b.add(Binary, multiply(b, x, y), b.constant([2.0]), kind=kind))
    (node,) = graph.nodes
    assert isinstance(node, Product)
    assert node.scale == pytest.approx(30 if kind == "mul" else 1 / 30)


def test_what_is_no_number_that_scales_stays() -> None:
    for scale in ([1.0, 2.0, 3.0, 4.0], 0.0, np.inf):  # 0 · ∞ is NaN wherever it stands
        b = Builder([1, 3, 4], [1, 4, 6])
        x = b.add(Binary, "x0", b.constant(scale), kind="mul")
        y = b.graph(multiply(b, x, "x1"))
        assert ops(simplify(y)) == ["mul", "product"]
    b = Builder([1, 1, 1], [1, 1, 6])  # the constant makes a row longer
    x = b.add(Binary, "x0", b.constant(np.full((1, 2, 1), 3.0)), kind="mul")
    assert ops(simplified(b, multiply(b, x, "x1"))) == ["mul", "product"]
    b = Builder([1, 3, 4], [1, 4, 6])  # c / x is no scale of x
    x = b.add(Binary, b.constant(2.0), "x0", kind="div")
    assert ops(simplified(b, multiply(b, x, "x1"))) == ["div", "product"]


def test_what_is_broadcast_is_read_as_often_as_it_is_needed() -> None:
    # keys [1, 2, 4, 7] -> [1, 2, 3, 4, 7] -> [1, 6, 4, 7], as groups of heads; and x / broadcast(y)
    b = Builder([1, 6, 5, 4], [1, 2, 1, 4, 7], [1, 6, 5, 1])
    y = b.add(Binary, "x1", b.constant(np.ones((1, 1, 3, 1, 1))), kind="mul")
    z = b.add(Binary, "x2", b.constant(np.ones((1, 1, 1, 7))), kind="mul")
    made = multiply(b, "x0", b.add(Reshape, y, shape=(1, 6, 4, 7)))
    graph = simplified(b, b.add(Binary, made, z, kind="div"))
    assert ops(graph) == ["product", "div"]
    (node, _) = graph.nodes
    assert isinstance(node, Product)
    assert node.b == View((2, 3, 4, 7), (28, 0, 7, 1))
    b = Builder([1, 6, 5, 1], [1, 6, 1, 7])  # neither has the shape of the result
    z = b.add(Binary, "x0", b.constant(np.ones((1, 1, 1, 7))), kind="mul")
    assert ops(simplified(b, b.add(Binary, "x1", z, kind="add"))) == ["mul", "add"]
    b = Builder([1, 6, 4, 5], [1, 6, 1, 7])  # other numbers than 1 are no broadcast
    y = b.add(Binary, "x1", b.constant(np.full((1, 1, 5, 1), 2.0)), kind="mul")
    assert ops(simplified(b, multiply(b, "x0", y))) == ["mul", "product"]


def test_keys_of_groups_of_heads_are_read_by_each() -> None:
    # x1 [1, N, 2, D] of two groups serves six heads, by a product of 3 heads each
    b = Builder([1, 6, 5, 4], [1, 2, 4, 7])
    x = b.add(Reshape, "x0", shape=(1, 2, 3, 5, 4))
    y = b.add(Reshape, "x1", shape=(1, 2, 1, 4, 7))
    graph = simplified(b, b.add(Reshape, multiply(b, x, y), shape=(1, 6, 5, 7)))
    (node,) = graph.nodes
    assert isinstance(node, Product)
    assert node.b == View((2, 3, 4, 7), (28, 0, 7, 1))


def test_what_a_product_no_longer_makes_is_asked_for_by_no_other_node() -> None:
    # the reshape, of no effect, goes into the product, while its readers skip it: not both at once
    b = Builder([1, 5, 4], [1, 4, 6])
    y = b.add(Reshape, multiply(b, "x0", "x1"), shape=(1, 5, 6))
    graph = simplified(b, *(b.add(Softmax, y, axis=axis) for axis in (1, 2)))
    assert ops(graph) == ["product", "softmax", "softmax"]
