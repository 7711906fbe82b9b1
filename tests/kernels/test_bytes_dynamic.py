"""Convolutions of steps that a run computes, as of ``DynamicQuantizeLinear`` and ``ConvInteger``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.dynamic import quantize_steps, scale_steps
from convoy.graph.ops import Binary, Conv2d, MatMul, Node, Pad, Quantize, Reshape
from convoy.graph.reference import run
from convoy.graph.sizes import Size, open_size
from convoy.graph.verify import verify
from convoy.kernels.elementwise import ElementwiseArray, ElementwiseMap
from convoy.kernels.integers import steps_pay
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import MACHINES, host
from quantising import Quantised, bytes_targets, ways_in_turn

Pair = tuple[int, int]
Sides = tuple[int, int, int, int]


def always(_: Node, __: Graph) -> bool:
    return True


def never(_: Node, __: Graph) -> bool:
    return False


def convolution(
    q: Quantised, *, channels: int = 24, kernel: Pair = (1, 1), padding: Sides = (0, 0, 0, 0),
    stride: Pair = (1, 1), groups: int = 1, rows: bool = False, width: Size = 13, least: int = -127,
) -> Graph:  # fmt: skip
    """(held - zero) · w · scale; ``rows``: of an image of one row, which is made of rows."""
    b, out = q.b, 32
    shape = (1, channels, 1 if rows else 9, width)
    steps, scale = q.dynamic(q.input(1, channels, width) if rows else q.input(*shape))
    if rows:
        steps = b.node(Reshape, (steps,), shape)
    w = q.random.integers(least, least + 255, (out, channels // groups, *kernel)).astype(np.float32)
    ends = padding[0] + padding[2], padding[1] + padding[3]
    image = [(n + more - k) // s + 1 for n, more, k, s in zip(shape[2:], ends, kernel, stride, strict=True)]
    names = steps, b.constant(w)
    product = b.node(Conv2d, names, (1, out, *image), padding=padding, stride=stride, groups=groups)
    return q.graph(b.node(Binary, (product, scale), (1, out, *image), kind="mul"))


SAME: Sides = (1, 1, 1, 1)
FORMS: dict[str, dict[str, Any]] = {
    "1x1": {},
    "3x3": {"kernel": (3, 3), "padding": SAME},
    "strided": {"kernel": (3, 3), "padding": (0, 0, 1, 1), "stride": (2, 2)},
    "depthwise": {"channels": 32, "groups": 32, "kernel": (3, 3), "padding": SAME},
    "image": {"channels": 3, "kernel": (3, 3), "padding": SAME},
    "rows": {"rows": True, "kernel": (1, 5), "padding": (0, 2, 0, 2)},
    "rows alone": {"rows": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_they_multiply_bytes_and_give_the_same_numbers(form: str) -> None:
    q = Quantised()
    graph = convolution(q, **FORMS[form])
    made = quantize_steps(graph, never, always)
    verify(made)
    assert any(isinstance(node, Quantize) for node in made.nodes)
    data = [np.abs(x) - 0.5 for x in q.numbers()]  # a zero point far from the middle
    (wanted,) = run(graph, data, np.float64)
    np.testing.assert_allclose(run(made, data, np.float64)[0], wanted, rtol=1e-12, atol=1e-9)
    for target in ways_in_turn(FORMS, form):
        (found,) = backend.load(graph, target, Options())(*data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 5, 33])
def test_widths_that_a_call_knows(count: int) -> None:
    graph = convolution(Quantised(), kernel=(3, 3), padding=SAME, width=open_size("size[0]", 16))
    verify(quantize_steps(graph, never, always))
    data = np.random.default_rng(count).random((1, 24, 9, count)).astype(np.float32)
    (wanted,) = run(graph.bound({axis.symbol: count for axis in graph.open_axes}), [data], np.float64)
    for target in bytes_targets():
        (found,) = backend.load(graph, target, Options())(data)
        assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


def test_who_reads_the_same_data_with_the_same_padding_shares_its_bytes() -> None:
    q = Quantised()
    steps, _ = q.dynamic(q.input(1, 16, 9, 9))
    w = [q.b.constant(q.random.integers(-9, 9, (8, 16, 3, 3)).astype(np.float32)) for _ in range(3)]
    same = [q.op(Conv2d, steps, one, shape=(1, 8, 9, 9), padding=SAME) for one in w[:2]]
    made = quantize_steps(q.graph(*same, q.op(Conv2d, steps, w[2], shape=(1, 8, 7, 7))), never, always)
    verify(made)
    assert [sum(isinstance(n, kind) for n in made.nodes) for kind in (Pad, Quantize)] == [1, 2]


def test_weights_of_nine_bits_are_multiplied_as_floats() -> None:
    graph = convolution(Quantised(), least=-100)
    assert quantize_steps(graph, always, always).nodes == graph.nodes


@pytest.mark.parametrize(("form", "made"), [("1x1", True), ("depthwise", False)])
def test_floats_stay_where_they_are_quicker(form: str, made: bool) -> None:
    # nothing is converted, as the steps are floats already
    graph = convolution(Quantised(), **FORMS[form])
    pays = steps_pay(MACHINES["haswell"], 1, Options())
    assert (quantize_steps(graph, never, pays).nodes != graph.nodes) == made


def test_a_chain_ends_in_bytes_of_the_computed_scale() -> None:
    q = Quantised()
    made = quantize_steps(convolution(q), never, always)
    plan = make_plan(made, MACHINES["znver4"], Options(threads=1))
    ends = [s.exprs[-1] for s in plan.steps if isinstance(s, ElementwiseArray | ElementwiseMap)]
    assert [e.op for e in ends].count("quantize_computed") == 1
    assert "quantize" not in [e.op for e in ends]


def test_a_zero_point_that_is_not_whole_is_added_before_it_is_rounded() -> None:
    q = Quantised()
    made = quantize_steps(convolution(q), never, always)
    (rounds,) = (
        n for n in made.nodes if getattr(n, "kind", "") == "round" and made.tensors[n.output].size == 1
    )
    nodes = tuple(replace(n, kind="abs") if n is rounds else n for n in made.nodes)
    plan = make_plan(replace(made, nodes=nodes), MACHINES["znver4"], Options(threads=1))
    ends = [s.exprs[-1].op for s in plan.steps if isinstance(s, ElementwiseArray | ElementwiseMap)]
    assert "quantize" in ends
    assert "quantize_computed" not in ends


SCALES = {"one": (), "each output": (1, 32, 1, 1), "each, of lower rank": (32, 1, 1)}


def scaled(q: Quantised, scales: str, *, rank: int = 4, twin: str = "") -> Graph:
    """relu(((held - zero) · w) * scale * each + bias), as floats; ``twin``: of what scale_steps takes."""
    b, random = q.b, q.random
    image, shape = (1, 32, 9, 13) if rank == 4 else (1, 9, 31), SCALES[scales]
    steps, scale = q.dynamic(q.input(*image))
    if shape:
        each = b.constant(random.random(shape if rank == 4 else (32,)).astype(np.float32))
        scale = b.node(Binary, (scale, each), (1, 32, 1, 1) if rank == 4 else (1, 1, 32), kind="mul")
    if twin == "a scale of each pixel":
        scale = b.node(Binary, (scale, q.input(1, 1, 9, 13)), (1, 1, 9, 13), kind="mul")
    out = (1, 32, 9, 13) if rank == 4 else (1, 9, 32)
    w = random.integers(-127, 127, (32, 1, 3, 3) if rank == 4 else (31, 32)).astype(np.float32)
    how = {"padding": SAME, "groups": 32} if rank == 4 else {}
    product = q.op(Conv2d if rank == 4 else MatMul, steps, b.constant(w), shape=out, **how)
    made = b.node(Binary, (product, scale), out, kind="mul")
    bias = b.constant(random.random((1, 32, 1, 1) if rank == 4 else (32,)).astype(np.float32))
    made = q.unary(b.node(Binary, (made, bias), out, kind="add"))
    also = {"sums are read twice": [product], "steps are read twice": [steps]}
    return q.graph(made, *(q.unary(name) for name in also.get(twin, [])))


@pytest.mark.parametrize("rank", [4, 3])
@pytest.mark.parametrize("scales", SCALES)
def test_floats_are_scaled_before_they_are_multiplied(scales: str, rank: int) -> None:
    graph = scaled(q := Quantised(), scales, rank=rank)
    made = scale_steps(graph)
    verify(made)
    data = [np.abs(x) - 0.5 for x in q.numbers()]
    (wanted,) = run(graph, data, np.float64)
    np.testing.assert_allclose(run(made, data, np.float64)[0], wanted, rtol=1e-5, atol=1e-6)
    code = backend.generate(
        graph, None, MACHINES["haswell"], Options(threads=1)
    )  # there floats are quicker
    (product,) = (step for step in code.report.steps if step.startswith(("conv2d", "matmul")))
    assert "+ bias, relu ->" in product
    assert "int8" not in product
    (found,) = backend.load(graph, host(), Options())(*data)
    assert np.abs(found - wanted).max() < 2e-6 * np.abs(wanted).max()


@pytest.mark.parametrize("twin", ["a scale of each pixel", "sums are read twice", "steps are read twice"])
def test_other_steps_are_scaled_behind(twin: str) -> None:
    graph = scaled(Quantised(), "one", twin=twin)
    assert scale_steps(graph).nodes == graph.nodes
    assert scale_steps(scaled(Quantised(), "one")).nodes != graph.nodes


@pytest.mark.parametrize("other", ["itself", "another"])
def test_products_of_products_stay(other: str) -> None:
    # of one number each: either would be the scale of the other
    q = Quantised()
    made = []
    for _ in range(2):
        steps, _ = q.dynamic(q.input(1, 31))
        w = q.b.constant(q.random.integers(-9, 9, (31, 1)).astype(np.float32))
        made.append(q.op(MatMul, steps, w, shape=(1, 1)))
    y = q.b.node(Binary, (made[0], made[0 if other == "itself" else 1]), (1, 1), kind="mul")
    graph = q.graph(y, *([q.unary(made[1])] if other == "itself" else []))
    assert scale_steps(graph).nodes == graph.nodes
