"""Products of bytes whose scale a run computes: scale, bias, residual and activation are one kernel's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Binary, Conv2d, MatMul, Reduce
from convoy.graph.reference import run
from convoy.graph.views import broadcast_shapes
from convoy.options import Options
from convoy.target import Target, host
from quantising import Quantised, bytes_targets

OUT = 40
"""No multiple of a vector's lanes: those behind it are 0."""
FORMS = {
    "scaled": ("",),
    "scaled + bias": ("bias",),
    "scaled + bias, relu": ("bias", "relu"),
    "scaled + residual": ("residual",),
    "scaled + bias, relu + residual, relu": ("bias", "relu", "residual", "relu"),
    "scaled + bias, gelu": ("bias", "gelu"),
}


class Scaled(Quantised):
    def binary(self, kind: str, x: str, y: str) -> str:
        shape = broadcast_shapes(self.b.shape_of(x), self.b.shape_of(y))
        return self.b.node(Binary, (x, y), shape, kind=kind)

    def each(self, rank: int) -> str:
        """A number for each output channel of the result of a convolution, or of a product."""
        shape = (1, OUT, 1, 1) if rank == 4 else (OUT,)
        return self.b.constant(self.random.uniform(0.5, 2.0, shape).astype(np.float32))

    def product(self, rank: int) -> tuple[str, str]:
        """Sums of whole numbers, and their scale; half of the channels have even weights alone."""
        steps, scale = self.dynamic(self.input(*((1, 24, 7, 9) if rank == 4 else (1, 15, 24))))
        w = self.random.integers(-60, 60, (OUT, 24)) * np.where(np.arange(OUT) % 2, 1, 2)[:, None]
        if rank == 4:
            names = steps, self.b.constant(w.reshape(OUT, 24, 1, 1).astype(np.float32))
            return self.b.node(Conv2d, names, (1, OUT, 7, 9)), scale
        return self.b.node(MatMul, (steps, self.b.constant(w.T.astype(np.float32))), (1, 15, OUT)), scale

    def ended(self, made: str, rank: int, parts: tuple[str, ...]) -> str:
        for part in parts:
            if part == "bias":
                made = self.binary("add", made, self.each(rank))
            elif part == "residual":
                made = self.binary("add", made, self.input(*self.b.shape_of(made)))
            elif part:
                made = self.unary(made, part)
        return made


def steps_of(graph: Graph, target: Target) -> tuple[str, ...]:
    return backend.generate(graph, None, target, Options(threads=1)).report.steps


@pytest.mark.parametrize("rank", [3, 4])
@pytest.mark.parametrize("form", FORMS)
def test_they_are_one_kernel(form: str, rank: int) -> None:
    q = Scaled()
    product, scale = q.product(rank)
    if "bias" in form:  # weights have a scale for each channel
        scale = q.binary("mul", scale, q.each(rank))
    graph = q.graph(q.ended(q.binary("mul", product, scale), rank, FORMS[form]))
    data = [np.abs(x) - 0.5 for x in q.numbers()]  # a zero point far from the middle
    (wanted,) = run(graph, data, np.float64)
    for target in bytes_targets():
        made = [step for step in steps_of(graph, target) if f", {form} ->" in step and "int8" in step]
        assert len(made) == 1
        (found,) = backend.load(graph, target, Options())(*data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("rank", [3, 4])
def test_what_is_rounded_behind_is_too(rank: int) -> None:
    q = Scaled()
    product, scale = q.product(rank)
    scaled = q.ended(q.binary("mul", product, scale), rank, ("bias", "relu"))
    graph = q.graph(q.bytes(scaled, 0.05, 3))
    data = q.numbers()
    (wanted,) = run(graph, data, np.float64)
    for target in bytes_targets():
        assert any(", scaled + bias, relu ->" in step for step in steps_of(graph, target))
        (found,) = backend.load(graph, target, Options())(*data)
        off = np.rint(np.abs(found - wanted) / 0.05)
        assert off.max() <= 1
        assert (off > 0).mean() < 0.01


@pytest.mark.parametrize("rank", [3, 4])
def test_what_is_added_to_the_sums_before_keeps_them_bytes(rank: int) -> None:
    # as int32 biases, which are added before the scale: they made floats of the product
    q = Scaled()
    product, scale = q.product(rank)
    graph = q.graph(q.binary("mul", q.ended(product, rank, ("bias",)), scale))
    data = [np.abs(x) - 0.5 for x in q.numbers()]
    (wanted,) = run(graph, data, np.float64)
    for target in bytes_targets():
        assert any(", scaled ->" in step and "int8" in step for step in steps_of(graph, target))
        (found,) = backend.load(graph, target, Options())(*data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize(
    "case", ["a scale for each pixel", "sums that are read twice", "another op between"]
)
def test_a_twin_is_no_such_kernel(case: str) -> None:
    q = Scaled()
    product, scale = q.product(4)
    if case == "a scale for each pixel":
        scale = q.binary("mul", scale, q.b.constant(q.random.random((1, 1, 7, 9)).astype(np.float32)))
    if case == "another op between":
        product = q.unary(product, "relu")
    made = q.binary("mul", product, scale)
    graph = q.graph(made, q.unary(product, "tanh")) if case == "sums that are read twice" else q.graph(made)
    data = q.numbers()
    assert not any("scaled" in step for step in steps_of(graph, host()))
    for found, wanted in zip(backend.load(graph, host(), Options())(*data), run(graph, data), strict=True):
        assert np.abs(found - wanted).max() < 1e-5 * np.abs(wanted).max()


def test_each_image_of_a_batch_has_its_own_scale() -> None:
    q = Scaled()
    steps, scale = q.dynamic(q.input(1, 24))
    w = q.b.constant(q.random.integers(-60, 60, (24, OUT)).astype(np.float32))
    product = q.b.node(MatMul, (steps, w), (1, OUT))
    graph = q.graph(q.ended(q.binary("mul", product, scale), 2, ("bias", "relu")))
    of_images = replace(graph, batch=None)
    data = q.random.random((5, 24)) * 10.0 ** np.arange(5)[:, None]
    wanted = np.concatenate([run(graph, [row[None].astype(np.float32)], np.float64)[0] for row in data])
    for target in bytes_targets():
        (found,) = backend.load(of_images, target, Options())(data.astype(np.float32))
        assert (np.abs(found - wanted).max(1) < 2e-6 * np.abs(wanted).max(1)).all()


def test_a_pattern_that_is_switched_off_is_no_kernel() -> None:
    q = Scaled()
    product, scale = q.product(4)
    graph = q.graph(q.ended(q.binary("mul", product, scale), 4, ("bias", "relu")))
    options = Options(threads=1, disabled_patterns=frozenset({"convoy.conv2d_bias_relu"}))
    steps = backend.generate(graph, None, host(), options).report.steps
    assert any(", scaled + bias ->" in step for step in steps)


@pytest.mark.parametrize("count", ["one", "each"])
@pytest.mark.parametrize("rank", [3, 4])
def test_what_is_added_before_may_be_one_number(rank: int, count: str) -> None:
    q = Scaled()
    x = q.input(*((1, 24, 7, 9) if rank == 4 else (1, 15, 24)))
    steps = q.bytes(x, 0.02, 120)
    product = q.conv(steps, OUT, bias=False) if rank == 4 else q.dense(steps, OUT, bias=False)
    axes = tuple(range(1, rank))
    added = scale = q.b.node(Reduce, (x,), (1,) * rank, kind="max", axes=axes)
    if count == "each":
        added = q.binary("mul", added, q.each(rank))
    graph = q.graph(q.binary("mul", q.binary("add", product, added), scale))
    data = q.numbers()
    (wanted,) = run(graph, data, np.float64)
    for target in bytes_targets():
        assert any(", scaled ->" in step for step in steps_of(graph, target))
        (found,) = backend.load(graph, target, Options())(*data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()
