"""Regions of many cases in one C unit: each has its own answer, and its own failure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from building import Builder
from convoy.backend import LoadedRegion
from convoy.errors import ConvoyError
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Unary
from convoy.graph.reference import run
from convoy.target import Target, host
from joining import join_units
from together import Asked, load_together


def layer(channels: int) -> Graph:
    b = Builder([1, channels, 6, 7])
    y = b.add(Conv2d, "x0", b.weight(5, channels, 3, 3), b.weight(5), padding=(1, 1, 1, 1))
    return b.graph(b.add(Unary, y, kind="relu"))


@pytest.mark.slow
def test_regions_of_one_unit_answer_as_by_themselves_and_fail_by_themselves() -> None:
    good = [layer(3), layer(17)]
    bad = replace(good[0], outputs=("nothing",))
    asked = [Asked(good[0], host()), Asked(bad, host()), Asked(good[1], Target("portable"))]
    asked.append(Asked(good[1], host()))
    first, failed, *others = load_together(asked)
    assert isinstance(failed, ConvoyError)
    for graph, region in zip((good[0], good[1], good[1]), (first, *others), strict=True):
        assert not isinstance(region, Exception)
        arrays = [np.random.default_rng(1).standard_normal(graph.shape("x0")).astype(np.float32)]
        (got,), (want,) = region(*arrays), run(graph, arrays, np.float64)
        assert np.abs(got - want).max() <= 2e-6 * np.abs(want).max()


def test_one_that_the_compiler_rejects_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("together.join_units", lambda _: "#error not joined\n")
    graph = layer(3)
    (region,) = load_together([Asked(graph, host())])
    assert not isinstance(region, Exception)


def test_a_unit_has_regions_of_other_costs_and_each_is_planned_under_what_it_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a machine's costs are decides plans, and no C: one unit of those with the same flags."""
    seen, units, sizes = [], [], Target("portable").l2_bytes

    @contextmanager
    def under(name: str) -> Iterator[None]:
        seen.append(name)
        yield
        seen.append(f"end of {name}")

    def join(sources: list[str]) -> str:
        units.append(len(sources))
        return join_units(sources)

    monkeypatch.setattr("together.join_units", join)
    graph, targets = layer(3), [Target("portable", l2_bytes=sizes), Target("portable", l2_bytes=sizes // 2)]
    asked = [Asked(graph, t, under=partial(under, name)) for t, name in zip(targets, "ab", strict=True)]
    found = load_together(asked)
    assert (seen, units) == (["a", "end of a", "b", "end of b"], [2])
    assert not any(isinstance(region, Exception) for region in found)


@pytest.mark.together(of=lambda: [Asked(layer(3), host())])
def test_a_case_without_parameters_asks_too(regions: list[LoadedRegion]) -> None:
    assert len(regions) == 1
