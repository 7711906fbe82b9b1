"""The host's own figures: what of a probe counts, that it is kept, and that it breaks no compilation."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.errors import ToolchainError
from convoy.graph.ops import Conv2d
from convoy.options import Options
from convoy.target import MACHINES, Target, host
from convoy.target.figures import Figures
from convoy.target.measured import apply_figures
from convoy.toolchain import probe

CASCADE = MACHINES["cascadelake"]
HERE = replace(CASCADE, isa=host().isa, here=True)


def read(target: Target, **ratios: float) -> Figures:
    """What a probe would read of a target, but for some figures."""
    expected = replace(
        target.expected, clock=target.clock, fma_units=target.fma_units, load_units=target.load_units
    )
    return replace(expected, **{name: getattr(expected, name) * ratio for name, ratio in ratios.items()})


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONVOY_PROBE")
    probe._read.cache_clear()


def region(target: Target, folder: Path) -> backend.RegionCode:
    b = Builder([1, 64, 28, 28])
    y = b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), padding=(1, 1, 1, 1))
    return backend.generate(b.graph(y), None, target, Options(threads=2, cache=folder))


@pytest.mark.parametrize("name", sorted(MACHINES))
@pytest.mark.parametrize("seed", range(5))
def test_what_is_not_far_off_is_the_rows(name: str, seed: int) -> None:
    row, random = MACHINES[name], np.random.default_rng(seed)
    off = {
        f.name: float(random.uniform(0.45, 2.2)) for f in fields(Figures) if not f.name.endswith("units")
    }
    off |= dict.fromkeys(("fma_units", "load_units"), float(random.uniform(0.65, 1.5)))
    assert apply_figures(row, read(row, **off)) == (row, "measured as its row says")


def test_one_unit_in_place_of_two() -> None:
    # as the smaller Xeons of the family
    found, words = apply_figures(CASCADE, read(CASCADE, fma_units=0.49))
    assert (found.fma_units, found.load_units) == (1, 2)
    assert words == "measured beside its row: 1 fma units"
    zen5 = MACHINES["znver5"]
    narrow, _ = apply_figures(zen5, read(zen5, fma_units=0.5, load_units=0.5))
    assert (narrow.fma_units, narrow.load_units) == (1, 1)


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_loads_that_a_neighbour_takes_are_the_rows(name: str) -> None:
    row = MACHINES[name]
    assert apply_figures(row, read(row, load_units=0.5)) == (row, "measured as its row says")


def test_a_slow_memory_and_a_dear_barrier() -> None:
    found, words = apply_figures(CASCADE, read(CASCADE, memory=0.3, barrier=5.0, l2=1.3))
    assert found == replace(
        CASCADE, memory_rate=2.0, far_rate=2.5, stream_rate=12.0, barrier=6000.0, step=6000.0, team=153600.0
    )
    assert words == "measured beside its row: memory × 0.5, barrier × 4"


@pytest.mark.parametrize("wrong", [0.0, -1.0, 1e-3, 1e3, float("nan"), float("inf")])
@pytest.mark.parametrize("name", [f.name for f in fields(Figures)])
def test_what_cannot_be_leaves_the_row(name: str, wrong: float) -> None:
    found, words = apply_figures(CASCADE, read(CASCADE, **{name: wrong}))
    assert found == CASCADE
    assert words.startswith(f"the figures of its row: a probe read {name} ")


def test_two_probes_give_one_target(probed: None) -> None:
    first, second = probe.measure(), probe.measure()
    assert apply_figures(host(), first)[0] == apply_figures(host(), second)[0]
    assert 1e9 < first.clock < 7e9
    assert first.memory < 2 * first.l2


def test_two_probes_give_one_plan_and_one_symbol(
    probed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = []
    for number, ratio in enumerate((0.6, 1.6)):
        figures = read(HERE, memory=ratio, barrier=ratio, clock=1 / ratio, l2=ratio, load_units=ratio)
        monkeypatch.setattr(probe, "measure", lambda _, figures=figures: figures)
        made.append(region(HERE, tmp_path / str(number)))
    assert made[0].symbol == made[1].symbol
    assert made[0].sources == made[1].sources
    assert made[0].report.machine == "measured as its row says"


def test_a_machine_is_measured_once_a_cache(
    probed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    calls = []
    monkeypatch.setattr(probe, "measure", lambda _: calls.append(1) or read(HERE, memory=0.3))
    for _ in range(2):
        target, words = probe.as_measured(HERE, tmp_path)
        assert target.memory_rate == CASCADE.memory_rate / 2
        assert words == "measured beside its row: memory × 0.5"
        probe._read.cache_clear()
    assert calls == [1]


def test_a_named_machine_is_not_measured(
    probed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(probe, "measure", lambda _: pytest.fail("measured"))
    assert probe.as_measured(CASCADE, tmp_path) == (CASCADE, "")
    monkeypatch.setenv("CONVOY_PROBE", "0")
    assert probe.as_measured(HERE, tmp_path) == (HERE, "")


@pytest.mark.parametrize(
    "problem",
    [
        ToolchainError("compile", "C compiler", "expected gcc, got none", "install one"),
        MemoryError("64 MB"),
        RuntimeError("can't start new thread"),
        AttributeError("undefined symbol: cv_machine_clock"),
    ],
    ids=lambda problem: type(problem).__name__,
)
def test_a_probe_that_fails_leaves_the_row(
    problem: Exception, probed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = []

    def fail(units: list[str], target: Target, folder: Path | None) -> list[Path]:
        folders.append(folder)
        raise problem

    monkeypatch.setattr(probe, "compile_objects", fail)
    assert probe.as_measured(HERE, tmp_path) == (
        HERE,
        f"the figures of its row: the probe failed: {problem}",
    )
    assert folders == [tmp_path]  # not the user's cache, which may be none
