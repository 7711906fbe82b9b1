"""Random graphs, compiled and run, against the float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from unittest.mock import patch

import numpy as np
import pytest

from convoy.backend import LoadedRegion
from convoy.graph.reference import run
from convoy.kernels.strips import chains
from convoy.kernels.strips.window import Estimate
from convoy.options import Options
from convoy.target import Target, host
from fuzz.graphs import random_inputs, replayable, seeds
from fuzz.integers import integers_wherever_there_are
from fuzz.ties import FLOAT32, worst_error
from together import Asked


def asked(seed: int) -> list[Asked]:
    # every fourth graph on each narrower instruction set, every other one on a single thread, two of three
    # multiply bytes where they can
    isa = (
        host().isa
        if seed % 4 < 2
        else ("portable" if seed % 4 == 2 or host().isa == "portable" else "avx2")
    )
    with replayable(seed) as graph:
        options = Options(threads=1 + seed % 2)
        return [Asked(graph, Target(isa), options, lambda: integers_wherever_there_are(seed % 3 != 0))]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("seed", seeds(28))
def test_region_agrees_with_reference(seed: int, regions: list[LoadedRegion]) -> None:
    _check(seed, regions[0])


def asked_in_strips(seed: int) -> list[Asked]:
    """Every chain that is possible is formed, whatever it costs, and runs one to three rows at a time."""

    def estimate(stages: Sequence[object], *_: object) -> Estimate:
        return Estimate(apart=1e6 * len(stages) ** 2, together=0, rows=1 + seed % 3)

    @contextmanager
    def under(others: Callable[[], AbstractContextManager[object]]) -> Iterator[None]:
        with others(), patch.object(chains, "estimate_chain", estimate):
            yield

    return [replace(one, under=partial(under, one.under)) for one in asked(seed)]


@pytest.mark.together(of=asked_in_strips)
@pytest.mark.parametrize("seed", seeds(16))
def test_region_in_strips_agrees_with_reference(seed: int, regions: list[LoadedRegion]) -> None:
    _check(seed, regions[0])


def _check(seed: int, region: LoadedRegion) -> None:
    with replayable(seed) as graph:
        inputs = random_inputs(graph, seed)
        region(*inputs)  # leaves the arena dirty
        got, want = region(*inputs), run(graph, inputs, np.float64)
        assert [(a.shape, a.dtype) for a in got] == [(b.shape, held(b)) for b in want]
        assert worst_error(graph, inputs, got, want) <= FLOAT32


def held(want: np.ndarray) -> np.dtype:
    """The type of a region's answer where the reference gives this one."""
    return np.dtype(np.float32) if want.dtype == np.float64 else want.dtype
