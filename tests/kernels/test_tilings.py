"""Every register tile the planner can choose, on every instruction set, against the float64 reference.

Each region has one input and, for each tiling that ``rank_tilings`` lists, a convolution that is cut by it.
"""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph.ops import Conv2d
from convoy.graph.reference import run
from convoy.kernels.conv2d import direct
from convoy.options import Options
from convoy.plan.tiles import Tiling, rank_tilings
from convoy.target import InstructionSet, Target
from instruction_sets import HOST_SETS

BLOCKS = 5
"""Blocks of the output: chunks of 1 to 4 blocks, alone or with smaller ones."""


@pytest.mark.slow
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "out"),
    [((7, 7), 3, 1, (7, 7)), ((13, 14), 3, 2, (7, 7)), ((9, 13), 1, 2, (5, 7)), ((3, 15), 1, 1, (3, 15))],
    ids=["3x3", "3x3, stride 2", "1x1, stride 2", "1x1"],
)
def test_every_tiling_computes_the_same(
    size: tuple[int, int], kernel: int, stride: int, out: tuple[int, int], isa: InstructionSet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    target = Target(isa)
    channels, in_channels = BLOCKS * target.lanes - 3, 3 * target.lanes - 1
    pointwise = kernel == stride == 1
    width, height = (out[0] * out[1], 1) if pointwise else (out[1], out[0])
    tilings = list(rank_tilings(width, BLOCKS, target, height))
    left = iter(tilings)

    products = in_channels * kernel**2

    def next_tiling(*of: object) -> Tiling:
        assert of == (width, BLOCKS, target, height, True, 1, products)
        return next(left)

    monkeypatch.setattr(direct, "choose_tiling", next_tiling)
    b = Builder([1, in_channels, *size])
    sizes = b.weight(channels, in_channels, kernel, kernel), b.weight(channels)
    pad = (kernel // 2,) * 4
    outs = [b.add(Conv2d, "x0", *sizes, stride=(stride, stride), padding=pad) for _ in tilings]
    graph = b.graph(*outs)
    x = np.random.default_rng(3).standard_normal(graph.shape("x0")).astype(np.float32)
    region = backend.load(graph, target, Options(threads=2, accuracy="direct"))
    assert next(left, None) is None
    (want, *_) = run(graph, [x], np.float64)
    assert want.shape == (1, channels, *out)
    for tiling, got in zip(tilings, region(x), strict=True):
        error = float(np.abs(got - want).max() / np.abs(want).max())
        assert error <= 2e-6, f"{tiling}: error {error:.2e} of the largest output"
