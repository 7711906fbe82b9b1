"""Products of bytes whose scales float32 can hardly hold."""

from __future__ import annotations

import numpy as np
import pytest

from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, MatMul
from convoy.graph.reference import run
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import MACHINES, Target
from quantising import Quantised

CHANNELS = 16


def precision(graph: Graph) -> str:
    """What the product multiplies, where a CPU has instructions for bytes."""
    report = Report()
    backend.generate(graph, "region", MACHINES["znver4"], Options(threads=1), report)
    (region,) = report.regions
    (found,) = {d.precision for op, d in zip(region.ops, region.details, strict=True) if op in ANCHORS}
    return found


ANCHORS = ("conv2d", "matmul")


def product(
    anchor: str, x: float, w: float | np.ndarray, y: float | None, residual: float | None = None
) -> Graph:
    """A product of bytes of scales ``x`` and ``w``, to bytes of scale ``y`` or floats."""
    q = Quantised()
    shape = (1, CHANNELS, 4, 4) if anchor == "conv2d" else (8, CHANNELS)
    data = q.bytes(q.input(*shape), x, 128)
    weights = q.random.integers(-127, 128, (CHANNELS, CHANNELS)).astype(np.int8)
    weights[:, 0] = weights[0] = 1
    scale = np.broadcast_to(np.float32(w), CHANNELS).copy()
    axis = 0 if anchor == "conv2d" else 1
    whole = q.b.constant(weights[..., None, None] if anchor == "conv2d" else weights)
    dense = q.b.dequantize(whole, scale, np.zeros(CHANNELS, np.int8), axis)
    made = q.op(Conv2d if anchor == "conv2d" else MatMul, data, dense, shape=shape)
    if residual is not None:
        made = q.add(made, q.bytes(q.input(*shape), residual, 100))
    return q.graph(made if y is None else q.bytes(made, y, 120))


def check(graph: Graph, steps: float, *scales: float) -> None:
    """Inputs of up to so many steps of their scales; what comes out is what floats make of it."""
    draw = np.random.default_rng(3)
    arrays = [
        (np.rint(draw.uniform(-steps, steps, graph.shape(name))) * scale).astype(np.float32)
        for name, scale in zip(graph.inputs, scales, strict=True)
    ]
    with np.errstate(all="ignore"):
        (want,) = run(graph, arrays)
    (got,) = backend.load(graph, Target("portable"), Options(threads=1))(*arrays)
    np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize("y", [None, 1.0])
def test_nothing_times_scales_whose_product_is_infinite_is_nothing(anchor: str, y: float | None) -> None:
    # 0 * infinity was no number, and in bytes the least of them
    graph = product(anchor, 1e30, 1e30, y)
    assert precision(graph) == "float32"
    check(graph, 0, 1e30)


@pytest.mark.parametrize("anchor", ANCHORS)
def test_one_huge_scale_of_a_channel_is_enough(anchor: str) -> None:
    scales = np.full(CHANNELS, 0.01, np.float32)
    scales[3] = 3e38
    graph = product(anchor, 0.1, scales, 1.0)
    assert precision(graph) == "float32"
    check(graph, 0, 0.1)


@pytest.mark.slow
@pytest.mark.parametrize("residual", [1e30, 1e38])
def test_a_residual_of_far_larger_steps_has_an_exact_zero(residual: float) -> None:
    # its zero point, times its scale, was rounded: what is added there was 0 no more
    graph = product("conv2d", 0.1, 0.1, 1.0, residual)
    assert precision(graph) == "float32"
    check(graph, 0, 0.1, residual)


@pytest.mark.parametrize("anchor", ANCHORS)
@pytest.mark.parametrize(
    ("x", "w", "y"),
    [(0.05, 0.01, 0.1), (1e-30, 1e-30, 1e-20), (1e30, 1e-30, 1.0), (1e-7, 1e-12, 1e-5), (0.05, 1e-38, 0.1)],
)
def test_scales_of_which_all_is_finite_stay_in_bytes(anchor: str, x: float, w: float, y: float) -> None:
    assert precision(product(anchor, x, w, y)) == "int8"


@pytest.mark.slow
def test_a_residual_of_like_steps_stays_in_bytes() -> None:
    graph = product("conv2d", 0.05, 0.01, 0.1, 300.0)
    assert precision(graph) == "int8"
    check(graph, 0, 0.05, 300.0)
