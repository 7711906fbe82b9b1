"""Elementwise chains between bytes: by a table, or in floats between loading and storing."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Binary, Reduce
from convoy.graph.reference import run
from convoy.kernels.planner import make_plan
from convoy.kernels.table import TableArray
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES
from quantising import Quantised, agree

VNNI = MACHINES["znver4"]


def binary(q: Quantised, kind: str, x: str, y: str) -> str:
    return q.b.node(Binary, (x, y), q.b.shape_of(x), kind=kind)


def kernels(graph: Graph) -> list[str]:
    """The op and the types of each step, in running order."""
    report = Report()
    backend.generate(graph, "region", VNNI, Options(threads=1), report)
    (region,) = report.regions
    return [f"{op} {detail.precision}" for op, detail in zip(region.ops, region.details, strict=True)]


def silu(q: Quantised, x: str, scale: float) -> str:
    """As a quantiser writes it, both its ops rounded."""
    return q.bytes(binary(q, "mul", x, q.bytes(q.unary(x, "sigmoid"), 1 / 255)), scale)


@pytest.mark.slow
def test_what_one_tensor_of_bytes_becomes_is_a_table() -> None:
    q = Quantised()
    x = q.bytes(q.conv(q.bytes(q.input(1, 21, 9, 7), 0.03, 117), 37, 3), 0.03, 110)
    graph = q.graph(q.bytes(q.conv(silu(q, x, 0.02), 16, 3), 0.02, 100))
    assert not any("sigmoid float32" in kernel for kernel in kernels(graph))
    agree(graph, q.numbers())


def tables(graph: Graph) -> list[TableArray]:
    return [step for step in make_plan(graph, VNNI).steps if isinstance(step, TableArray)]


@pytest.mark.slow
def test_a_table_whose_entries_lie_on_a_line_is_computed_and_exact() -> None:
    q = Quantised()
    x = q.bytes(q.input(1, 4, 16, 16), 0.03, 117)
    halved = q.bytes(q.unary(x, "clip", a=-3.0, b=9.0), 0.06, 58)  # a tie at every other byte
    clamped = q.bytes(q.unary(x, "clip", a=-1.0, b=2.5), 0.021, 60)
    curved = q.bytes(q.unary(x, "sigmoid"), 1 / 255)
    graph = q.graph(halved, clamped, curved)
    assert [table.line is not None for table in tables(graph)] == [True, True, False]
    every_byte = (np.arange(1024) % 256 - 117).astype(np.float32).reshape(1, 4, 16, 16) * np.float32(0.03)
    agree(graph, [every_byte], off=0.0)


@pytest.mark.slow
def test_two_tensors_of_their_own_scales_and_a_gate_for_each_channel() -> None:
    q = Quantised()
    x = q.bytes(q.conv(q.bytes(q.input(1, 21, 9, 7), 0.03, 117), 37, 3), 0.03, 110)
    y = q.bytes(q.unary(binary(q, "add", silu(q, x, 0.02), x)), 0.025, 3)
    mean = q.bytes(q.b.node(Reduce, (y,), (1, 37, 1, 1), kind="mean", axes=(2, 3)), 0.01, 3)
    gate = q.bytes(q.unary(q.conv(mean, 37), "sigmoid"), 1 / 255)
    gated = q.bytes(q.b.node(Binary, (gate, y), (1, 37, 9, 7), kind="mul"), 0.0213, 2)
    agree(q.graph(q.bytes(q.conv(gated, 16, 3), 0.02, 100)), q.numbers())


@pytest.mark.slow
def test_rows_of_bytes_and_of_floats() -> None:
    q = Quantised()
    x, y = (q.bytes(q.input(1, 5, 37), scale, 117) for scale in (0.03, 0.02))
    bias = q.b.constant(np.linspace(-1, 1, 37, dtype=np.float32))
    a = q.bytes(q.unary(binary(q, "add", binary(q, "mul", x, y), bias), "tanh"), 0.01, 128)
    agree(q.graph(a, q.bytes(q.unary(x, "gelu"), 0.02, 20), q.bytes(q.add(a, x), 0.03, 90)), q.numbers())


def test_bytes_that_get_a_scale_for_each_channel_are_quantised_anew() -> None:
    # quantize(dequantize(x)) of many scales is no table, and no chain
    q = Quantised()
    x = q.bytes(q.input(1, 5, 37), 0.03, 117)
    scales, zeros = np.linspace(0.02, 0.05, 5, dtype=np.float32), np.full(5, 117, np.uint8)
    y = q.b.quantize(x, scales, zeros, 1)
    graph, data = q.b.finish(q.inputs, (y,), 1), q.numbers()
    (wanted,) = run(graph, data)
    np.testing.assert_array_equal(backend.load(graph)(*data)[0], wanted)
