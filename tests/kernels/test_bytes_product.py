"""Products of two computed matrices of bytes, as in a quantised attention."""

from __future__ import annotations

from dataclasses import replace

import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Product, Softmax, Transpose
from convoy.graph.views import exchanged, product_views, view_whole
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from quantising import Quantised, agree

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


@pytest.mark.parametrize(("queries", "keys", "depth"), [(19, 35, 32), (33, 70, 18)])
def test_attention_in_bytes_agrees_with_exact_evaluation(queries: int, keys: int, depth: int) -> None:
    q = Quantised()
    graph = q.graph(*attention(q, queries, keys, depth))
    assert precisions(graph, VNNI) == ["int8", "int8"]
    agree(graph, q.numbers(), off=0.004)


def test_signed_bytes_agree_and_a_row_or_a_factor_of_floats_is_multiplied_as_floats() -> None:
    q = Quantised()
    x, rows = (q.bytes(q.input(1, 3, m, 32), 0.03, 117) for m in (1, 9))
    signed, floats = q.bytes(q.input(1, 3, 32, 16), 0.03, 7, "int8"), q.input(1, 3, 32, 16)
    made = [q.bytes(product(q, a, b), 0.01, 120) for a, b in ((rows, signed), (x, signed), (rows, floats))]
    graph = q.graph(*made)
    assert sorted(precisions(graph, VNNI)) == ["float32", "float32", "int8"]
    agree(graph, q.numbers(), off=0.004)


def test_floats_win_where_products_of_bytes_take_longer() -> None:
    q = Quantised()
    graph = q.graph(*attention(q, 197, 197, 64))
    slow = replace(ZEN3, direct=replace(ZEN3.direct, bytes_apart=6.0))
    found = [precisions(graph, target) for target in (VNNI, ZEN3, slow)]
    assert found == [["int8"] * 2, ["int8"] * 2, ["float32"] * 2]
