"""``tune`` through the Relay door: measured choices reach the kernels, and are remembered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from relay_modules import close, module, random, run, run_plain, weight
from tvm import relay
from tvm.relay import op

import convoy
from convoy.options import Options
from convoy.report.decision import Report
from convoy.tune import trial, tuner

IMAGE = (1, 16, 12, 12)
#: The bound of F(6x6, 3x3) in docs/architecture.md, of the largest output; any candidate may be chosen.
LEAST_EXACT = 5e-5


def conv(x: relay.Expr) -> relay.Expr:
    return op.nn.relu(op.nn.conv2d(x, weight(16, 16, 3, 3), padding=(1, 1)))


def two_convs(x: relay.Expr) -> relay.Expr:
    """Two regions: TVM computes the sine between them."""
    return op.nn.conv2d(op.sinh(conv(x)), weight(8, 16, 3, 3, seed=2))


def pick(index: int):
    """In place of measuring: the candidate at ``index`` is the fastest."""
    return lambda _, names, *rest: {name: 0.5 + (i != index) for i, name in enumerate(names)}


def build(make=conv, **options: object) -> tuple[object, Report]:
    report = Report()
    with convoy.relay.using(report=report):
        cut = convoy.relay.partition_for_convoy(module(make, IMAGE), **options)
        return relay.build(cut, target="llvm"), report


def reasons(report: Report) -> list[str]:
    return [d.reason.split(" ms")[0] for d in report.decisions if d.step == "plan" and "conv2d" in d.node]


@pytest.fixture(autouse=True)
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times are kept in a cache of the test's own; objects come from the user's."""
    real = tuner.store.open_cache
    monkeypatch.setattr(tuner.store, "open_cache", lambda folder: real(tmp_path / "tuned"))


@pytest.mark.slow
def test_tuning_measures_once_and_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "RUNS", 1)
    library, report = build(tune="600", threads=1)
    assert reasons(report) == ["measured"]
    (got,), (want,) = run(library, random(*IMAGE)), run_plain(module(conv, IMAGE), random(*IMAGE))
    assert np.abs(got - want).max() <= LEAST_EXACT * np.abs(want).max()

    monkeypatch.setattr(tuner, "measure_candidates", None)  # an error to call
    _, again = build(tune="600", threads=1)
    assert reasons(again) == ["measured"]
    assert [r.steps for r in again.regions] == [r.steps for r in report.regions]


def test_tuning_is_not_done_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "measure_candidates", None)  # an error to call
    _, report = build()
    assert all(reason.startswith("estimated") for reason in reasons(report))


def test_tvms_door_tunes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "measure_candidates", pick(0))
    report = Report()
    with convoy.relay.using(Options(tune=5.0), report):
        relay.build(module(conv, IMAGE), target="convoy")
    assert reasons(report) == ["measured"]


def test_the_regions_of_a_build_share_the_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    # the first region's measurement takes longer than allowed  =>  the second one's is not begun
    monkeypatch.setattr(tuner, "measure_candidates", pick(0))
    _, report = build(two_convs, tune=1e-9)
    assert sorted(reason.split()[0] for reason in reasons(report)) == ["estimated", "measured"]


@pytest.mark.slow
def test_kernels_of_other_choices_have_other_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # the same region, tuned to another candidate in the same process  =>  both run, each its own code
    built = []
    for index in (0, 1):
        monkeypatch.setattr(tuner, "measure_candidates", pick(index))
        monkeypatch.setattr(tuner.store, "find", lambda key, folder: None)
        monkeypatch.setattr(tuner.store, "keep", lambda key, folder, times: times)
        built.append(build(tune=5.0, accuracy="fast"))
    (_, first), (_, second) = built
    assert first.regions[0].symbol != second.regions[0].symbol
    for library, _ in built:
        close(run(library, random(*IMAGE)), run_plain(module(conv, IMAGE), random(*IMAGE)))


def test_text_that_is_no_number_is_an_error() -> None:
    with pytest.raises(convoy.errors.ConvoyError, match="expected a number of seconds, got 'long'"):
        convoy.relay.partition_for_convoy(tvm.IRModule.from_expr(relay.const(1.0)), tune="long")
