"""Products with matrices of bytes: static scales, and scales that are computed as the network runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.dynamic import quantize_steps
from convoy.graph.ops import Binary, Dequantize, MatMul, Node, Quantize
from convoy.graph.reference import run
from convoy.graph.sizes import open_size
from convoy.graph.verify import verify
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from quantising import Quantised, agree, bytes_targets

VNNI = MACHINES["znver4"]


def at(graph: Graph, count: int) -> Graph:
    """The graph with so many rows."""
    return graph.bound({axis.symbol: count for axis in graph.open_axes})


def precisions(graph: Graph, target: Target = VNNI) -> list[str]:
    """What each product multiplies, in running order."""
    report = Report()
    backend.generate(graph, "region", target, Options(threads=1), report)
    (region,) = report.regions
    return [d.precision for op, d in zip(region.ops, region.details, strict=True) if op == "matmul"]


def mlp(q: Quantised, rows: int) -> str:
    """Rows with all that joins a product, and a residual of another scale."""
    x = q.bytes(q.input(1, rows, 36), 0.03, 117)
    y = q.bytes(q.unary(q.dense(x, 72), "gelu"), 0.02, 20)
    return q.bytes(q.unary(q.add(q.dense(y, 36, channels=False), x)), 0.025, 3)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 19])
def test_rows_agree_with_exact_evaluation(rows: int) -> None:
    q = Quantised()
    graph = q.graph(mlp(q, rows))
    assert precisions(graph) == ["int8", "int8"]
    agree(graph, q.numbers(), off=0.004)


def test_a_depth_that_is_no_whole_cells_is_multiplied_as_floats() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 7, 30), 0.03, 117)
    assert precisions(q.graph(q.bytes(q.dense(x, 16), 0.03, 120))) == ["float32"]


def never(_: Node, __: Graph) -> bool:
    return False


def dynamic(
    q: Quantised, *, whole: bool = True, rows: int = 11, depth: int = 40, least: int = -127
) -> Graph:
    """(held - zero) · w · scale, as ``DynamicQuantizeLinear`` and ``MatMulInteger`` become floats."""
    b = q.b
    steps, scale = q.dynamic(q.input(1, rows, depth))
    w = q.random.integers(least, least + 255, (depth, 24)).astype(np.float32) + (0 if whole else 0.25)
    product = b.node(MatMul, (steps, b.constant(w)), (1, rows, 24))
    scaled = b.node(Binary, (scale, b.constant(np.float32([0.01]))), (1, 1, 1), kind="mul")
    return q.graph(b.node(Binary, (product, scaled), (1, rows, 24), kind="mul"))


@pytest.mark.slow
def test_steps_that_are_computed_as_it_runs_become_bytes() -> None:
    # (held - zero) · w  =>  dequantize(quantize(held)) · w + (128 - zero) Σ w
    q = Quantised()
    graph = dynamic(q)
    made = quantize_steps(graph, never, never)
    verify(made)
    assert {Quantize, Dequantize} <= {type(node) for node in made.nodes}
    data = q.numbers()
    (wanted,) = run(graph, data, np.float64)
    np.testing.assert_allclose(run(made, data, np.float64)[0], wanted, rtol=1e-12, atol=1e-9)
    assert precisions(graph) == ["int8"]
    for target in bytes_targets():
        (found,) = backend.load(graph, target, Options())(*data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.slow
def test_rows_that_a_call_counts_are_multiplied_as_bytes() -> None:
    # static scales, a product that ends in bytes and one that ends in floats
    q, rows = Quantised(), open_size("size[0]", 16)
    x = q.bytes(q.input(1, rows, 36), 0.03, 117)
    graph = q.graph(q.dense(q.bytes(q.dense(x, 72), 0.02, 20), 24))
    assert precisions(graph) == ["int8", "int8"]
    for target in bytes_targets():
        region = backend.load(graph, target, Options())
        for count in (1, 7, 40):
            data = np.random.default_rng(count).standard_normal((1, count, 36)).astype(np.float32)
            (found,), (wanted,) = region(data), run(at(graph, count), [data], np.float64)
            assert found.shape == wanted.shape
            assert (np.abs(found - wanted).max(axis=-1) < 1e-5).mean() > 0.8  # rounding may meet a tie


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 33])
def test_steps_of_open_rows_become_bytes(count: int) -> None:
    graph = dynamic(Quantised(), rows=open_size("size[0]", 16))
    assert precisions(graph) == ["int8"]
    data = np.random.default_rng(count).standard_normal((1, count, 40)).astype(np.float32)
    (wanted,) = run(at(graph, count), [data], np.float64)
    for target in bytes_targets():
        (found,) = backend.load(graph, target, Options())(data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.slow
def test_weights_of_nine_bits_become_bytes_where_twice_the_products_pay() -> None:
    q = Quantised()
    graph = dynamic(q, least=-100)
    assert quantize_steps(graph, never, never).nodes == graph.nodes
    assert (precisions(graph), precisions(graph, MACHINES["haswell"])) == (["int8"], ["float32"])
    data = q.numbers()
    (wanted,) = run(graph, data, np.float64)
    for target in bytes_targets():
        (found,) = backend.load(graph, target, Options())(*data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


def test_weights_that_are_no_whole_numbers_are_multiplied_as_floats() -> None:
    graph = dynamic(Quantised(), whole=False)
    assert quantize_steps(graph, never, never).nodes == graph.nodes
    assert precisions(graph) == ["float32"]


@pytest.mark.parametrize(
    ("depth", "least", "made"),
    [(40, -127, True), (42, -127, False), (41, -94, False), (42, -94, True)],
    ids=["bytes", "no whole cells", "two bytes, no whole cells", "two bytes"],
)
def test_steps_become_bytes_where_a_kernel_takes_their_depth(depth: int, least: int, made: bool) -> None:
    graph = dynamic(Quantised(), rows=256, depth=depth, least=least)
    assert (quantize_steps(graph, lambda *_: True, never).nodes != graph.nodes) == made
    assert precisions(graph) == (["int8"] if made else ["float32"])


def test_floats_win_where_bytes_take_longer_than_their_conversion() -> None:
    q = Quantised()
    graph = q.graph(q.bytes(q.dense(q.bytes(q.input(1, 64, 512), 0.03, 117), 512), 0.03, 120))
    slow = replace(VNNI, features=VNNI.features - {"avx512vnni"})
    costly = replace(slow, direct=replace(slow.direct, bytes_apart=8.0))
    assert precisions(graph) == ["int8"]
    assert precisions(graph, costly) == ["float32"]
