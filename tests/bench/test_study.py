"""What the figures of several models come to, and how they are written."""

from __future__ import annotations

import json
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from convoy.bench.bounds import Work
from convoy.bench.estimates import StepTime
from convoy.bench.machine import Rates
from convoy.bench.measure import Measurement, Timing
from convoy.bench.picture import draw
from convoy.bench.startup import Startup
from convoy.bench.study import Settings, Study, geometric_mean, means, run_study, score, wrong_engines
from convoy.bench.text import format_bounds, format_ms, format_spread, study_markdown
from convoy.errors import ModelError


def timing(engine: str, milliseconds: float, ratio: float, error: float = 1e-6) -> Timing:
    fastest, p90, p99 = milliseconds / 2, 1.5 * milliseconds, 2 * milliseconds
    return Timing(
        engine, milliseconds, fastest, milliseconds, p90, p99, 1e3 / milliseconds, 0.1, ratio, 10, error,
        samples=(fastest, milliseconds, p99),
    )  # fmt: skip


@pytest.fixture
def measurement() -> Measurement:
    """Convoy 10 ms; OpenVINO right behind, ncnn ahead but wrong, ONNX Runtime not able."""
    return Measurement(
        (timing("convoy", 10.0, 1.0), timing("openvino", 13.0, 1.25), timing("ncnn", 5.0, 0.5, error=0.1)),
        {"onnxruntime": "bench: onnxruntime: expected a model it runs, got none; leave it out"},
        Work(direct=10**9, winograd=4 * 10**8, traffic=10**7),
        Rates(flops=2e11, bandwidth=2e10),
        (Startup("convoy", 1.0, 20.0, 90 * 10**6, 40 * 10**6, 5 * 10**6),),
        (StepTime("conv2d", "direct", 2.0, 3.0), StepTime("max_pool2d", "max_pool2d", 0.5, 0.25)),
        weight_bytes=4 * 10**6,
        others=0.7,
    )


@pytest.fixture
def study(measurement: Measurement) -> Study:
    return Study(
        date="2026-01-02 03:04",
        command="convoy bench net",
        cpu="a CPU",
        threads=2,
        settings=Settings(("convoy", "onnxruntime", "openvino", "ncnn")),
        versions={"onnx": "1.0"},
        load=(5.0, 6.0),
        results={"net": measurement},
        failures={"other": "import: other: expected a file, got none; check the path"},
    )


def test_the_best_peer_is_the_fastest_that_is_right(measurement: Measurement) -> None:
    found = score(measurement)
    assert (found.peer, found.ratio, found.fastest) == ("openvino", 1.25, 1.3)
    assert [t.engine for t in wrong_engines(measurement)] == ["ncnn"]


def test_bounds_are_shares_of_the_peak_of_the_same_run(measurement: Measurement) -> None:
    found = score(measurement)
    assert found.direct == pytest.approx(1e9 / 2e11 / 0.010)
    assert found.winograd == pytest.approx(4e8 / 2e11 / 0.010)


def test_a_wrong_answer_earns_no_mean(study: Study) -> None:
    found = means(study)
    assert found["best"] == found["openvino"] == 1.25
    assert isnan(found["ncnn"])
    assert isnan(found["onnxruntime"])
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


def test_the_table_says_who_failed_and_why_and_that_the_machine_was_busy(study: Study) -> None:
    text = study_markdown(study)
    assert "| net | 10 ±5 % | fails | 13 ±5 % (1.25×) | 5 ±5 % (0.50×) wrong | **1.25** OpenVINO" in text
    assert "- net, ONNX Runtime: bench: onnxruntime: expected a model it runs" in text
    assert "- net, ncnn: wrong by 1.0e-01" in text
    assert "- other: import: other" in text
    assert "cores that other processes took: 0.7. The machine was busy" in text
    assert "FMA peak 200 GFLOP/s" in text
    assert "convoy bench net" in text
    assert "| net | Convoy | 1 | 20 | 21 | 90.0 | 40.0 | 5.0 | 1.25 |" in text
    assert "| net | direct | 1 | 2 | 3 | 1.50 | 1.50 × |" in text
    assert "| all | max_pool2d | 1 | 0.5 | 0.25 | 0.50 | 2.00 × |" in text


def test_json_holds_all_of_it(study: Study, tmp_path: Path) -> None:
    study.write(tmp_path / "study.json")
    data = json.loads((tmp_path / "study.json").read_text())
    assert data["results"]["net"]["timings"][1]["ratio"] == 1.25
    assert data["results"]["net"]["rates"]["flops"] == 2e11
    assert data["results"]["net"]["steps"][0]["measured"] == 3.0
    assert data["load"] == [5.0, 6.0]


@pytest.mark.parametrize("suffix", [".svg", ".png"])
def test_the_picture_shows_every_model_and_engine(study: Study, tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib, of the extra 'bench', is not installed")
    path = tmp_path / f"study{suffix}"
    draw(study, path)
    assert path.stat().st_size > 1000
    if suffix == ".svg":
        text = path.read_text()
        assert all(word in text for word in ("net", "Convoy", "OpenVINO", "1.25", "a CPU", "0.50 wrong"))


def test_a_share_above_all_and_a_spread_of_one_round_are_explained(measurement: Measurement) -> None:
    assert "more than 100 % is right" not in format_bounds(measurement)
    quick = replace(measurement, rates=Rates(flops=5e10, bandwidth=2e10))
    assert "200 % of the direct FLOP bound" in format_bounds(quick)
    assert "more than 100 % is right where" in format_bounds(quick)
    first = measurement.timings[0]
    assert [format_spread(t) for t in (first, replace(first, rounds=1))] == ["±5 %", "–"]


@pytest.mark.slow
def test_one_bad_model_does_not_stop_the_others(tmp_path: Path) -> None:
    settings = Settings(("onnxruntime",), threads=1, rounds=1)
    (tmp_path / "bad.onnx").write_text("no model")
    bad = str(tmp_path / "bad.onnx")
    study = run_study([bad, "squeezenet"], settings, "here")
    assert list(study.results) == ["squeezenet"]
    assert "bad.onnx: expected an ONNX model" in study.failures[bad]
    with pytest.raises(ModelError, match=r"bad\.onnx"):
        run_study([bad], settings, "here")


def test_a_name_that_is_none_is_said_before_anything_is_timed() -> None:
    told: list[str] = []
    settings = Settings(("onnxruntime",), threads=1, rounds=1)
    with pytest.raises(ModelError, match="no_such_net: expected an ONNX file or a network of the zoo"):
        run_study(["squeezenet", "no_such_net"], settings, "here", told.append)
    assert not told


def test_times_have_three_digits() -> None:
    assert [format_ms(x) for x in (0.01234, 4.567, 78.91, 1234.5)] == ["0.0123", "4.57", "78.9", "1234"]
