"""The generated C, as text and as a program: a golden file is compared, compiled and run.

``CONVOY_UPDATE_GOLDEN=1 pytest tests/codegen/test_golden.py`` writes the files anew; read the diff.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import Builder, multiply
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import (
    Binary,
    Conv2d,
    LayerNorm,
    MatMul,
    Pool2d,
    Reduce,
    Reshape,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.graph.reference import run
from convoy.target import Target
from convoy.toolchain.compiler import compile_objects, kernel_sources, link_shared, runtime_sources
from convoy.toolchain.loader import load_region
from convoy.toolchain.weights import embed_weights

FOLDER = Path(__file__).parent / "golden"
TARGET = Target("portable")
"""So that the golden programs run on every machine."""


def conv_bias_relu() -> Graph:
    b = Builder([1, 3, 40, 40])
    x = b.add(Conv2d, "x0", b.weight(8, 3, 3, 3), b.weight(8), stride=(2, 2), padding=(1, 1, 1, 1))
    return b.graph(b.add(Unary, x, kind="relu"))


def first_layer() -> Graph:
    # multiplied along its rows, and directly where its input is too large for that
    b = Builder([1, 3, 24, 24])
    return b.graph(
        b.add(Conv2d, "x0", b.weight(16, 3, 7, 7), b.weight(16), stride=(2, 2), padding=(3, 3, 3, 3))
    )


def residual_block() -> Graph:
    b = Builder([1, 8, 24, 24])
    x = b.add(Conv2d, "x0", b.weight(8, 8, 1, 1), b.weight(8))
    y = b.add(Conv2d, x, b.weight(8, 8, 3, 3), b.weight(8), padding=(1, 1, 1, 1))
    return b.graph(b.add(Unary, b.add(Binary, "x0", y, kind="add"), kind="relu"))


def scaled_chain() -> Graph:
    b = Builder([1, 5, 4])
    x = b.add(Binary, "x0", b.weight(4), kind="mul")
    return b.graph(b.add(Unary, b.add(Binary, x, b.constant(0.5), kind="add"), kind="tanh"))


def pooled_classifier() -> Graph:
    # one thread alone computes the product
    b = Builder([1, 8, 48, 48])
    x = b.add(Pool2d, "x0", kind="max", kernel=(2, 2), stride=(2, 2))
    x = b.add(Reduce, x, kind="mean", axes=(2, 3), keepdims=False)
    return b.graph(b.add(MatMul, x, b.weight(8, 10), b.weight(10)))


def winograd_pooled() -> Graph:
    # the convolution's own map is written nowhere
    b = Builder([1, 32, 16, 16])
    x = b.add(Conv2d, "x0", b.weight(32, 32, 3, 3), b.weight(32), padding=(1, 1, 1, 1))
    return b.graph(b.add(Pool2d, b.add(Unary, x, kind="relu"), kind="max", kernel=(2, 2), stride=(2, 2)))


def winograd_slabs() -> Graph:
    # two slabs of input blocks: while one is multiplied, the weights of the next are transformed
    # 26 rows are six tiles of four and one of two
    b = Builder([1, 64, 26, 26])
    return b.graph(b.add(Conv2d, "x0", b.weight(32, 64, 3, 3), b.weight(32), padding=(1, 1, 1, 1)))


def batch_of_images() -> Graph:
    # threads that have images of their own meet once, after the last of them
    b = Builder([1, 8, 6, 6], batch=None)
    x = b.add(Reduce, "x0", kind="mean", axes=(2, 3), keepdims=False)
    return b.graph(b.add(MatMul, x, b.weight(8, 10), b.weight(10)))


def attention_of_heads() -> Graph:
    # heads are strides of one product; what attends is normalised, and multiplied with itself transposed
    b = Builder([1, 5, 12], [1, 1, 5])
    packed = b.add(Reshape, b.add(MatMul, "x0", b.weight(12, 36)), shape=(1, 5, 3, 2, 6))
    q, k, v = (
        b.add(
            Reshape,
            b.add(Slice, b.add(Transpose, packed, perm=(0, 2, 3, 1, 4)), axis=1, begin=i, end=i + 1),
            shape=(1, 2, 5, 6),
        )
        for i in range(3)
    )
    scores = multiply(
        b, b.add(Binary, q, b.constant(0.4), kind="mul"), b.add(Transpose, k, perm=(0, 1, 3, 2))
    )
    scores = b.add(Binary, scores, b.add(Reshape, "x1", shape=(1, 1, 1, 5)), kind="add")
    heads = b.add(Transpose, multiply(b, b.add(Softmax, scores, axis=3), v), perm=(0, 2, 1, 3))
    y = b.add(LayerNorm, b.add(Reshape, heads, shape=(1, 5, 12)), axis=2, epsilon=1e-5, centred=False)
    return b.graph(multiply(b, y, b.add(Transpose, y, perm=(0, 2, 1))))


GRAPHS = {
    conv_bias_relu: TARGET,
    first_layer: TARGET,
    residual_block: TARGET,
    scaled_chain: TARGET,
    pooled_classifier: TARGET,
    winograd_pooled: TARGET,
    winograd_slabs: replace(TARGET, l2_bytes=256 << 10),
    batch_of_images: TARGET,
    attention_of_heads: TARGET,
}


@pytest.mark.parametrize("make", GRAPHS)
def test_generated_c_is_the_golden_program(make: Callable[[], Graph]) -> None:
    graph, target = make(), GRAPHS[make]
    code = backend.generate(graph, make.__name__, target)
    path = FOLDER / f"{make.__name__}.c"
    if os.environ.get("CONVOY_UPDATE_GOLDEN"):
        path.write_text(code.sources[0])
    golden = path.read_text()
    assert code.sources[0] == golden

    shared = {**kernel_sources([golden]), **runtime_sources()}
    objects = compile_objects([golden, *shared.values()], target)
    objects = [*objects, embed_weights(code.symbol, code.weights, target)] if code.weights else objects
    region = load_region(link_shared(objects), replace(code, sources=(golden,)))
    shapes = [graph.shape(name) for name in graph.inputs]
    arrays = Builder(*shapes, seed=3).arrays(graph.batch or 5)
    for got, want in zip(region(*arrays), run(graph, arrays, np.float64), strict=True):
        assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()


def test_equal_plans_emit_equal_c() -> None:
    # the same network twice gives the same text: the cache depends on it
    first = backend.generate(residual_block(), "region", TARGET)
    again = backend.generate(residual_block(), "region", TARGET)
    assert first.sources == again.sources
    assert first.weights == again.weights
