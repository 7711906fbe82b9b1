"""graph/columns.py: one or two channels of bytes are read as four, of columns that follow one another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.columns import read_columns
from convoy.graph.dtypes import DType
from convoy.graph.ops import Conv2d, Node
from convoy.graph.reference import run
from convoy.graph.sizes import open_size
from convoy.graph.verify import verify
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES
from quantising import Quantised, agree, ways_in_turn
from together import Asked

Pair = tuple[int, int]


def sound(
    kernel: Pair = (1, 20),
    stride: Pair = (1, 4),
    padding: tuple[int, int, int, int] = (0, 0, 0, 0),
    dilation: Pair = (1, 1),
    *,
    channels: int = 1,
    held: tuple[DType, int] = ("uint8", 117),
    weight: tuple[DType, int] = ("int8", 0),
    size: Pair = (1, 301),
    out: int = 24,
) -> Graph:
    """A convolution of bytes, an activation, and the next scale."""
    q = Quantised()
    x = q.bytes(q.input(1, channels, *size), 0.03, held[1], held[0])
    bounds = np.iinfo(weight[0])
    whole = q.random.integers(bounds.min + 1, bounds.max, (out, channels, *kernel)).astype(weight[0])
    scale = ((0.5 + q.random.random(out)) / 127 / np.sqrt(channels * np.prod(kernel))).astype(np.float32)
    w = q.b.dequantize(q.b.constant(whole), scale, np.full(out, weight[1], weight[0]))
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    made = [
        (n + padding[i] + padding[i + 2] - r) // s + 1
        for i, (n, r, s) in enumerate(zip(size, reach, stride, strict=True))
    ]
    bias = q.b.constant(q.random.standard_normal(out).astype(np.float32))
    shape = (1, out, *made)
    y = q.b.node(Conv2d, (x, w, bias), shape, stride=stride, padding=padding, dilation=dilation)
    return q.graph(q.bytes(q.unary(y), 0.05, 3))


def always(_: Node, __: Graph) -> bool:
    return True


def draw(graph: Graph, width: int = 0) -> list[np.ndarray]:
    random = np.random.default_rng(3)
    shapes = [
        [width if i == 3 and width else n for i, n in enumerate(graph.shape(x))] for x in graph.inputs
    ]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


def anchor(graph: Graph) -> tuple[int, ...]:
    (conv,) = [node for node in graph.nodes if isinstance(node, Conv2d)]
    return graph.shape(conv.inputs[1])


FORMS = {
    "audio": sound(),
    "padded": sound((1, 10), (1, 5), (0, 5, 0, 3)),
    "stride of 1": sound((1, 7), (1, 1), (0, 3, 0, 3)),
    "dilated": sound((1, 9), (1, 3), (0, 2, 0, 2), (1, 2)),
    "whole cells": sound((1, 80), (1, 4), size=(1, 400)),
    "image": sound((5, 5), (1, 1), (2, 2, 2, 2), size=(19, 23)),
    "image, strides": sound((3, 6), (2, 2), (1, 0, 2, 1), (2, 1), size=(19, 23)),
    "stereo": sound((1, 8), (1, 4), (0, 2, 0, 2), channels=2),
    "stereo, an odd number": sound((3, 5), (1, 2), (1, 2, 1, 0), (1, 3), channels=2, size=(9, 40)),
    "signed": sound((1, 10), (1, 5), (0, 5, 0, 3), held=("int8", -11)),
    "weights of a zero point": sound((1, 10), (1, 5), weight=("uint8", 3)),
}


@pytest.mark.parametrize("form", FORMS)
def test_four_columns_are_channels_and_the_answer_is_the_same(form: str) -> None:
    graph = FORMS[form]
    made = read_columns(graph, always)
    verify(made)
    out, channels, rows, taps = anchor(graph)
    assert anchor(made) == (out, 4, rows, -(-taps * channels // 4))
    for one, other in zip(*(run(g, draw(graph), np.float64) for g in (graph, made)), strict=True):
        np.testing.assert_array_equal(one, other)


@contextmanager
def whatever_it_costs() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "read_columns_where_it_pays", lambda graph, *_: read_columns(graph, always))
        yield


def asked(form: str) -> list[Asked]:
    return [Asked(FORMS[form], target, under=whatever_it_costs) for target in ways_in_turn(FORMS, form)]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("form", FORMS)
def test_kernels_agree_with_exact_evaluation(form: str, regions) -> None:
    agree(FORMS[form], draw(FORMS[form]), off=0.004, regions=regions)


@pytest.mark.parametrize(
    "graph", [sound(channels=3), sound((1, 3)), sound((9, 1), size=(40, 5))], ids=["channels", "3", "1"]
)
def test_others_are_left(graph: Graph) -> None:
    assert read_columns(graph, always).nodes == graph.nodes


def reads_columns(graph: Graph, name: str = "znver4") -> bool:
    report = Report()
    backend.generate(graph, "region", MACHINES[name], Options(threads=1), report)
    (region,) = report.regions
    return sum("concat" in step for step in region.steps) == 4


def test_it_is_done_where_it_pays() -> None:
    assert reads_columns(sound((1, 80), (1, 4), size=(1, 16000), out=128))
    assert not reads_columns(sound((1, 80), (1, 4), size=(1, 120), out=8))
    assert not reads_columns(sound((1, 4), (1, 4), size=(1, 16000), out=8))


@pytest.mark.slow
def test_any_width_is_read() -> None:
    graph = sound((1, 10), (1, 5), (0, 5, 0, 3), size=(1, open_size("size[0]", 16000, 10)), out=128)
    assert reads_columns(graph)
    region = backend.load(graph, options=Options(threads=2))
    for width in (10, 11, 57, 400):
        data = draw(graph, width)
        bound = graph.bound({axis.symbol: width for axis in graph.open_axes})
        (wanted,) = run(bound, data, np.float64)
        assert np.abs(region(*data)[0] - wanted).max() <= 0.0501  # a byte at a tie
