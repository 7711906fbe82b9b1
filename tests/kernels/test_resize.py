"""Resizes whose result leaves the region at once, and those that something reads."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Resize, Softmax
from convoy.graph.reference import run
from convoy.kernels.layout import Unpack
from convoy.kernels.planner import make_plan
from convoy.kernels.resize import ResizeBilinear, ResizeNearest
from convoy.options import Options
from convoy.plan.buffers import Array, Map
from convoy.target import Target
from instruction_sets import HOST_SETS
from pairs import pairs

Mode = Literal["nearest", "bilinear"]


def network(mode: Mode, channels: int = 21, read: str = "", size: tuple[int, int] = (21, 300)) -> Graph:
    """A convolution, resized, and what ``read`` says after that."""
    b = Builder([1, 8, 7, 12])
    x = b.add(Conv2d, "x0", b.weight(channels, 8, 1, 1))
    y = b.add(Resize, x, shape=(1, channels, *size), mode=mode, coordinates="half_pixel")
    if read == "convolution":
        return b.graph(b.add(Conv2d, y, b.weight(5, channels, 3, 3)))
    if read == "both":
        return b.graph(y, b.add(Softmax, y, axis=1, log=False))
    return b.graph(y)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize(("read", "kind"), [("", Array), ("convolution", Map), ("both", Map)])
def test_only_a_result_that_nothing_reads_is_row_major_at_once(mode: Mode, read: str, kind: type) -> None:
    steps = make_plan(network(mode, read=read), Target("avx512")).steps
    (resized,) = [s for s in steps if isinstance(s, ResizeNearest | ResizeBilinear)]
    assert isinstance(resized.y, kind)
    assert any(isinstance(s, Unpack) for s in steps) == (kind is Map)


@pytest.mark.parametrize(
    ("isa", "mode", "form"),
    pairs(
        HOST_SETS,
        ["nearest", "bilinear"],
        [(1, ""), (21, ""), (32, ""), (21, "convolution"), (21, "both")],
    ),
)
def test_the_answer_is_the_reference_s(isa: str, mode: Mode, form: tuple[int, str]) -> None:
    channels, read = form
    graph = network(mode, channels, read)
    arrays = [np.random.default_rng(1).standard_normal((1, 8, 7, 12)).astype(np.float32)]
    wanted = run(graph, arrays)
    for threads in ("1", "3"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CONVOY_NUM_THREADS", threads)
            found = backend.load(graph, Target(isa), Options())(*arrays)
        for got, want in zip(found, wanted, strict=True):
            assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max()
