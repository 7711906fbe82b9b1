"""Products of two computed matrices of bytes, as in a quantised attention."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.least import settle_least
from convoy.graph.ops import Product, Softmax, Transpose
from convoy.graph.sizes import open_size
from convoy.graph.views import exchanged, product_views, view_whole
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from quantising import Quantised, agree, bytes_targets, hold_to_exact, on_any_threads
from together import Asked

VNNI, ZEN3 = MACHINES["znver4"], MACHINES["znver3"]


def precisions(graph: Graph, target: Target) -> list[str]:
    """What each product multiplies, in running order."""
    report = Report()
    backend.generate(graph, "region", target, Options(threads=1), report)
    (region,) = report.regions
    return [d.precision for op, d in zip(region.ops, region.details, strict=True) if op == "product"]


def product(q: Quantised, x: str, y: str, *, turned: bool = False, scale: float = 1.0) -> str:
    a, b = (view_whole(q.b.shape_of(name)) for name in (x, y))
    a, b, made = product_views(a, exchanged(b) if turned else b)
    return q.op(Product, x, y, shape=made.shape, a=a, b=b, y=made, scale=scale)


def attention(q: Quantised, queries: int, keys: int, depth: int) -> list[str]:
    x, k, v = (
        q.bytes(q.input(1, 3, rows, depth), 0.03, zero)
        for rows, zero in ((queries, 117), (keys, 140), (keys, 128))
    )
    scores = q.bytes(product(q, x, k, turned=True, scale=depth**-0.5), 0.04, 121)
    shares = q.bytes(q.op(Softmax, scores, shape=(1, 3, queries, keys), axis=3), 1 / 255)
    mixed = q.bytes(product(q, shares, v), 0.005, 126)
    return [
        scores,
        q.bytes(q.op(Transpose, mixed, shape=(1, queries, 3, depth), perm=(0, 2, 1, 3)), 0.005, 126),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("queries", "keys", "depth"), [(19, 35, 32), (33, 70, 18)])
def test_attention_in_bytes_agrees_with_exact_evaluation(queries: int, keys: int, depth: int) -> None:
    q = Quantised()
    graph = q.graph(*attention(q, queries, keys, depth))
    assert precisions(graph, VNNI) == ["int8", "int8"]
    agree(graph, q.numbers(), off=0.004)


@pytest.mark.slow
def test_signed_bytes_agree_and_a_row_or_a_factor_of_floats_is_multiplied_as_floats() -> None:
    q = Quantised()
    x, rows = (q.bytes(q.input(1, 3, m, 32), 0.03, 117) for m in (1, 9))
    signed, floats = q.bytes(q.input(1, 3, 32, 16), 0.03, 7, "int8"), q.input(1, 3, 32, 16)
    made = [q.bytes(product(q, a, b), 0.01, 120) for a, b in ((rows, signed), (x, signed), (rows, floats))]
    graph = q.graph(*made)
    assert sorted(precisions(graph, VNNI)) == ["float32", "float32", "int8"]
    agree(graph, q.numbers(), off=0.004)


def test_a_product_is_of_bytes_however_deep_it_is() -> None:
    q = Quantised()
    x, y = (q.bytes(q.input(1, 3, *shape), 0.03, 117) for shape in ((20, 20000), (20000, 32)))
    graph = q.graph(q.bytes(product(q, x, y), 0.2, 120))
    assert [precisions(graph, target) for target in (VNNI, ZEN3)] == [["int8"]] * 2


def test_floats_win_where_products_of_bytes_take_longer() -> None:
    q = Quantised()
    graph = q.graph(*attention(q, 197, 197, 64))
    slow = replace(ZEN3, direct=replace(ZEN3.direct, bytes_apart=6.0))
    found = [precisions(graph, target) for target in (VNNI, ZEN3, slow)]
    assert found == [["int8"] * 2, ["int8"] * 2, ["float32"] * 2]


OPEN_SIZES = ((19, 35), (1, 9), (33, 1), (16, 64), (3, 130))
"""Queries and keys of calls."""


def open_attention() -> Graph:
    q = Quantised()
    queries, keys = (open_size(f"size[{i}]", 20) for i in range(2))
    return settle_least(q.graph(*attention(q, queries, keys, 18)))


def asked_of_open_sizes() -> list[Asked]:
    graph = open_attention()
    fixed = graph.bound({at.symbol: n for at, n in zip(graph.open_axes, OPEN_SIZES[0], strict=True)})
    return [*(Asked(graph, target) for target in bytes_targets()), Asked(fixed, bytes_targets()[-1])]


@pytest.mark.slow
@pytest.mark.together(of=asked_of_open_sizes)
def test_products_of_open_sizes_give_the_bytes_of_fixed_ones(regions: list[LoadedRegion]) -> None:
    graph = open_attention()
    assert [precisions(graph, target) for target in (VNNI, ZEN3)] == [["int8", "int8"]] * 2
    *of_open_sizes, fixed = regions
    for sizes in OPEN_SIZES:
        bound = graph.bound({at.symbol: n for at, n in zip(graph.open_axes, sizes, strict=True)})
        random = np.random.default_rng(sum(sizes))
        arrays = [random.standard_normal(bound.shape(name)).astype(np.float32) for name in bound.inputs]
        same = [fixed] if sizes == OPEN_SIZES[0] else []
        first, *others = (on_any_threads(region, arrays) for region in [*of_open_sizes, *same])
        for other in others:
            for one, another in zip(first, other, strict=True):
                np.testing.assert_array_equal(one, another)
        hold_to_exact(bound, first, arrays, off=0.02)


def test_sums_of_no_terms_are_the_zero_point_and_sums_of_very_many_are_whole() -> None:
    q = Quantised()
    depth = open_size("size[0]", 20, 0)
    x, y = (q.bytes(q.input(1, 3, *shape), 0.03, 117) for shape in ((5, depth), (depth, 9)))
    graph = q.graph(q.bytes(product(q, x, y), 0.2, 120))
    assert precisions(graph, VNNI) == ["int8"]
    region = backend.load(graph, bytes_targets()[-1])
    (none,) = region(np.ones((1, 3, 5, 0), np.float32), np.ones((1, 3, 0, 9), np.float32))
    assert not none.any()
    random = np.random.default_rng(0)
    arrays = [
        random.standard_normal(shape).astype(np.float32) for shape in ((1, 3, 5, 33001), (1, 3, 33001, 9))
    ]
    (at,) = graph.open_axes
    hold_to_exact(graph.bound({at.symbol: 33001}), [*region(*arrays)], arrays, off=0.004)
