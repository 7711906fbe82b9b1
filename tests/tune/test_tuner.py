"""Measured choices: which candidates, what is remembered, and what the planner makes of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.errors import TargetError
from convoy.graph import Graph
from convoy.graph.ops import Binary, ChannelShuffle, Conv2d, Unary
from convoy.graph.reference import run
from convoy.graph.sizes import open_size
from convoy.graph.verify import verify
from convoy.kernels.conv2d.candidates import list_candidates
from convoy.kernels.registry import choose_layouts
from convoy.options import Options
from convoy.plan.fuse import fuse
from convoy.plan.tiles import rank_tilings
from convoy.report.decision import Report
from convoy.target import InstructionSet, Target, host
from convoy.tune import store, trial, tuner
from convoy.tune.trial import draw_trial
from convoy.tune.tuner import Tuner, describe_trial, make_tuner
from instruction_sets import HOST_SETS, in_turn

PAD = (1, 1, 1, 1)


def network() -> Graph:
    """Two 3x3 convolutions of one shape, a strided one, a 1x1 with a residual, a depthwise one."""
    b = Builder([1, 32, 12, 12])
    x = "x0"
    for _ in range(3):
        x = b.add(Unary, b.add(Conv2d, x, b.weight(32, 32, 3, 3), b.weight(32), padding=PAD), kind="relu")
    y = b.add(Conv2d, x, b.weight(32, 1, 3, 3), b.weight(32), padding=PAD, groups=32)
    y = b.add(Binary, b.add(Conv2d, y, b.weight(32, 32, 1, 1), b.weight(32)), x, kind="add")
    return b.graph(b.add(Conv2d, y, b.weight(48, 32, 3, 3), stride=(2, 2), padding=PAD))


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Options:
    """Tuning into a cache of its own; objects come from the user's, so that it takes seconds."""
    real = store.open_cache
    monkeypatch.setattr(store, "open_cache", lambda folder: real(tmp_path / "tuned"))
    monkeypatch.setattr(trial, "RUNS", 1)
    return Options(threads=1, tune=600.0)


@pytest.mark.slow
@pytest.mark.parametrize("isa", HOST_SETS)
def test_every_candidate_computes_the_convolution(isa: InstructionSet) -> None:
    target = Target(isa)
    graph = network()
    blocked = choose_layouts(graph, fuse(graph))
    fusions = {describe_trial(g, graph, blocked): g for g in fuse(graph) if isinstance(g.anchor, Conv2d)}
    # the convolution of the input is the same as the next one
    others = [f for f in fusions.values() if f.anchor.inputs[0] not in graph.inputs]
    for fusion in (fusion for fusion, on in in_turn(others) if on == isa):
        alone = draw_trial(fusion, graph, blocked)
        verify(alone)
        arrays = [
            np.random.default_rng(5).standard_normal(alone.shape(n)).astype("f") for n in alone.inputs
        ]
        (want,) = run(alone, arrays, np.float64)
        output = next(node.output for node in alone.nodes if isinstance(node, Conv2d))
        candidates = list_candidates(fusion.anchor, graph, target, 2, Options(), blocked=True)
        for name, choice in candidates.items():
            chosen = {output: choice}
            region = backend.load(alone, target, Options(threads=2), tuner=lambda _, c=chosen: c)
            (got,) = region(*arrays)
            assert np.abs(got - want).max() <= 1e-5 * np.abs(want).max(), name


def test_the_estimate_is_one_of_three_to_seven_candidates() -> None:
    graph = network()
    found = [
        list_candidates(n, graph, Target("avx512"), 2, Options(), blocked=True)
        for n in graph.nodes
        if isinstance(n, Conv2d)
    ]
    sizes = [len(candidates) for candidates in found]
    assert all(3 <= size <= 7 for size in sizes if size), sizes
    assert sizes.count(0) == 1  # the depthwise one
    assert all(next(iter(candidates)) == "estimated" for candidates in found if candidates)


@pytest.mark.slow
def test_what_has_sizes_that_a_call_gives_keeps_the_estimated_way(options: Options) -> None:
    # the twin, of known sizes, is measured
    def measured(*sizes: int) -> int:
        b = Builder([1, 32, *sizes])
        graph = b.graph(b.add(Conv2d, "x0", b.weight(32, 32, 3, 3), padding=(1, 1, 1, 1)))
        found = Tuner(host(), options)
        code = backend.generate(graph, "region", host(), options, Report(), tuner=found)
        assert "conv2d" in code.report.ops
        return found.measured

    assert measured(12, 12) == 1
    assert measured(open_size("height", 12), open_size("width", 12)) == 0


def test_beside_a_tile_of_two_rows_the_best_of_one_row_is_tried() -> None:
    b = Builder([1, 64, 14, 14])
    y = b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    graph, target = b.graph(y), Target("avx512")
    best, *others = rank_tilings(7, 4, target, height=7)
    alone = next(t for t in others if t.tile_rows == 1)
    assert best.tile_rows == 2
    candidates = list_candidates(graph.producer[y], graph, target, 2, Options(), blocked=True)
    assert (max(alone.rows.pixels), alone.blocks) in [c.tile for c in candidates.values()]


def test_a_trial_has_its_input_in_the_layout_of_the_network() -> None:
    # row-major: an input of the network, or what an op without blocks makes of one
    b = Builder([1, 3, 64, 64])
    scaled = b.add(Binary, "x0", b.constant(0.5), kind="mul")
    first = b.add(Conv2d, scaled, b.weight(64, 3, 7, 7), stride=(2, 2))
    graph = b.graph(b.add(Conv2d, first, b.weight(64, 64, 3, 3)))
    fusions = fuse(graph)
    blocked = choose_layouts(graph, fusions)
    trials = [draw_trial(g, graph, blocked) for g in fusions if isinstance(g.anchor, Conv2d)]
    assert [[type(node) for node in trial.nodes] for trial in trials] == [
        [Conv2d],
        [ChannelShuffle, Conv2d],
    ]


@pytest.mark.slow
def test_a_network_is_measured_once_and_found_in_the_cache(options: Options) -> None:
    lines: list[str] = []
    first, second = Tuner(host(), options, lines.append), Tuner(host(), options)
    graph, report = network(), Report()
    measured = first(graph)
    # the first convolution reads the graph's input, the other two 3x3 are alike: 4 shapes
    assert first.measured == len(lines) == 4
    assert len(measured) == 5
    assert second(graph) == measured
    assert (second.measured, second.spent) == (0, 0.0)
    code = backend.generate(graph, "region", host(), options, report, tuner=second)
    assert (
        code.report.source == backend.generate(graph, "region", host(), options, tuner=first).report.source
    )
    reasons = [d.reason for d in report.decisions if d.choice in ("direct",) or "winograd" in d.choice]
    assert sum(reason.startswith("measured ms: estimated ") for reason in reasons) == 5


def test_the_planner_takes_the_fastest_candidate(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    # whatever is slower on this machine: the last candidate is said to be the fastest
    monkeypatch.setattr(
        tuner, "measure_candidates", lambda _, names, *rest: {n: 1.0 / (i + 1) for i, n in enumerate(names)}
    )
    graph = network()
    for name, choice in Tuner(host(), options)(graph).items():
        node = graph.producer[name]
        assert isinstance(node, Conv2d)
        *_, last = list_candidates(node, graph, host(), 1, options, blocked=True).values()
        assert replace(choice, measured={}) == last


def test_a_candidate_has_to_be_clearly_faster_than_the_estimated_one() -> None:
    assert tuner.fastest({"estimated": 1.0, "a": 0.98, "b": 1.5}) == "estimated"
    assert tuner.fastest({"estimated": 1.0, "a": 0.9, "b": 0.8}) == "b"


@pytest.mark.slow
def test_a_damaged_entry_is_measured_again(options: Options, tmp_path: Path) -> None:
    graph = network()
    before = Tuner(host(), options)(graph)
    entries = sorted((tmp_path / "tuned").glob("??/*.tuned"))
    assert len(entries) == 4
    entries[0].write_text("{}")
    entries[1].with_name(entries[1].name + ".sum").unlink()
    again = Tuner(host(), options)
    assert again(graph).keys() == before.keys()
    assert again.measured == 2
    assert entries[0].read_text() != "{}"


@pytest.mark.slow
def test_a_spent_budget_leaves_estimates(options: Options) -> None:
    # the first measurement takes longer than a millisecond, the others are not begun
    hasty = Tuner(host(), replace(options, tune=1e-3))
    assert 0 < len(hasty(network())) < 5
    assert hasty.measured == 1
    assert make_tuner(host(), replace(options, tune=0.0)) is None


@pytest.mark.parametrize(
    "change", [{"threads": 2}, {"isa": "portable"}, {"what": "another"}, {"names": ["a"]}], ids=str
)
def test_what_times_depend_on_is_in_the_key(change: dict[str, object]) -> None:
    facts: dict[str, object] = {"what": "conv", "names": ["a", "b"], "isa": "avx2", "threads": 1}

    def key(f: dict[str, object]) -> str:
        return store.make_key(str(f["what"]), f["names"], Target(f["isa"]), f["threads"])  # type: ignore[arg-type]

    assert key(facts) != key({**facts, **change})
    assert key(facts) == key(dict(facts))


def test_a_machine_that_lacks_the_targets_instructions_cannot_measure(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tuner, "host", lambda: Target("portable"))
    with pytest.raises(TargetError, match="tune: avx2: expected what this machine has, portable"):
        Tuner(Target("avx2"), options)
