"""Random graphs, compiled and run, against the float64 reference."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from convoy import backend
from convoy.graph.reference import run
from convoy.kernels.strips import chains
from convoy.kernels.strips.window import Estimate
from convoy.options import Options
from convoy.target import Target, host
from fuzz.graphs import random_inputs, replayable, seeds

BOUND = 2e-5
"""Error, of the largest output: what float32 itself may differ by on these graphs, see test_graphs.py."""


@pytest.mark.parametrize("seed", seeds(28))
def test_region_agrees_with_reference(seed: int) -> None:
    # every fourth graph on each narrower instruction set, every other one on a single thread
    _check(seed)


@pytest.mark.parametrize("seed", seeds(16))
def test_region_in_strips_agrees_with_reference(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # every chain that is possible is formed, whatever it costs, and runs one to three rows at a time
    def estimate(stages: Sequence[object], *_: object) -> Estimate:
        return Estimate(apart=1e6 * len(stages) ** 2, together=0, rows=1 + seed % 3)

    monkeypatch.setattr(chains, "estimate_chain", estimate)
    _check(seed)


def _check(seed: int) -> None:
    isa = (
        host().isa
        if seed % 4 < 2
        else ("portable" if seed % 4 == 2 or host().isa == "portable" else "avx2")
    )
    with replayable(seed) as graph:
        inputs = random_inputs(graph, seed)
        region = backend.load(graph, Target(isa), Options(threads=1 + seed % 2))
        region(*inputs)  # leaves the arena dirty
        for got, want in zip(region(*inputs), run(graph, inputs, np.float64), strict=True):
            assert got.shape == want.shape
            assert np.abs(got - want).max() <= BOUND * max(np.abs(want).max(), 1e-3)
