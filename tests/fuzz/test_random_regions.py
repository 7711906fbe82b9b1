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
from fuzz.integers import integers_wherever_there_are
from fuzz.ties import FLOAT32, worst_error


@pytest.mark.parametrize("seed", seeds(28))
def test_region_agrees_with_reference(seed: int) -> None:
    # every fourth graph on each narrower instruction set, every other one on a single thread, two of three
    # multiply bytes where they can
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
        with integers_wherever_there_are(seed % 3 != 0):
            region = backend.load(graph, Target(isa), Options(threads=1 + seed % 2))
        region(*inputs)  # leaves the arena dirty
        got, want = region(*inputs), run(graph, inputs, np.float64)
        assert [(a.shape, a.dtype) for a in got] == [(b.shape, held(b)) for b in want]
        assert worst_error(graph, inputs, got, want) <= FLOAT32


def held(want: np.ndarray) -> np.dtype:
    """The type of a region's answer where the reference gives this one."""
    return np.dtype(np.float32) if want.dtype == np.float64 else want.dtype
