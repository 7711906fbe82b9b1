"""Zeros around a map are what its halo holds: no step puts them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from building import Builder
from convoy.backend import load
from convoy.graph.graph import Graph
from convoy.graph.ops import Binary, Concat, Conv2d, Pad, Pool2d, Reduce, Unary
from convoy.graph.reference import run
from convoy.graph.sizes import open_size
from convoy.kernels.layout import Unpack
from convoy.kernels.pad import PadArray
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import Target
from instruction_sets import HOST_SETS

Widths = tuple[tuple[int, int], ...]
AROUND: Widths = ((0, 0), (0, 0), (1, 2), (3, 0))


def padded(b: Builder, x: str, widths: Widths = AROUND, **attributes: Any) -> str:
    return b.add(Pad, x, widths=widths, **attributes)


def made(b: Builder, channels: int = 21) -> str:
    """A map, whose halo another convolution reads, too."""
    return b.add(Conv2d, "x0", b.weight(channels, 5, 1, 1), b.weight(channels))


READERS: dict[str, Callable[[Builder, str], Sequence[str]]] = {
    "an activation": lambda b, x: [b.add(Unary, padded(b, x), kind="sigmoid")],
    "a convolution that pads, too": lambda b, x: [
        b.add(Conv2d, p := padded(b, x), b.weight(8, b.tensors[x].shape[1], 3, 3), padding=(1, 1, 1, 1)),
        b.add(Unary, p, kind="exp"),
    ],
    "the source's own convolution": lambda b, x: [
        b.add(Unary, padded(b, x), kind="tanh"),
        b.add(Conv2d, x, b.weight(8, b.tensors[x].shape[1], 5, 5), padding=(2, 2, 2, 2)),
    ],
    "a pool": lambda b, x: [b.add(Pool2d, padded(b, x), kind="max", kernel=(3, 3), stride=(2, 2))],
    "a sum": lambda b, x: [b.add(Reduce, padded(b, x), kind="mean", axes=(2, 3))],
    "a concat": lambda b, x: [b.add(Concat, p := padded(b, x), b.add(Unary, p, kind="relu"), axis=1)],
    "another pad": lambda b, x: [b.add(Unary, padded(b, padded(b, x)), kind="sigmoid")],
    "a sum of two": lambda b, x: [
        b.add(Binary, padded(b, x), padded(b, x, ((0, 0), (0, 0), (2, 1), (0, 3))), kind="add")
    ],
    "the region's output": lambda b, x: [padded(b, x), x],
}


def steps_of(graph: Graph) -> list[type]:
    return [type(step) for step in make_plan(graph, Target("avx2"), Options(threads=2)).steps]


def reading(reader: str, channels: int = 21, batch: int | None = 1) -> tuple[Builder, Graph]:
    b = Builder([1, 5, 9, 12], batch=batch)
    return b, b.graph(*READERS[reader](b, made(b, channels)))


@pytest.mark.parametrize("channels", [21, 16])
@pytest.mark.parametrize("reader", READERS)
def test_they_are_read_from_the_halo(reader: str, channels: int) -> None:
    images = 1 if channels % 16 else 3
    b, graph = reading(reader, channels, batch=1 if images == 1 else None)
    assert PadArray not in steps_of(graph)
    x = b.arrays(images)
    wanted = run(graph, x, np.float64)
    for isa in HOST_SETS[-2:]:
        for got, want in zip(load(graph, Target(isa), Options(threads=2))(*x), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "twin", ["another value", "a mode", "channels", "a row-major tensor", "open sizes"]
)
def test_other_pads_are_steps(twin: str) -> None:
    height = open_size("size[0]", 9) if twin == "open sizes" else 9
    b = Builder([1, 5, height, 12])
    x = "x0" if twin == "a row-major tensor" else made(b)
    widths = ((0, 0), (1, 1), (1, 1), (1, 1)) if twin == "channels" else AROUND
    how: dict[str, Any] = {"another value": {"value": 1.0}, "a mode": {"mode": "reflect"}}.get(twin, {})
    y = b.add(Unary, padded(b, x, widths, **how), kind="sigmoid")
    assert PadArray in steps_of(b.graph(y))


def test_what_reads_rows_is_unpacked_with_them() -> None:
    _, graph = reading("the region's output")
    assert steps_of(graph).count(Unpack) == 2
