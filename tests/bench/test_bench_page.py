"""The page of a study: wrong engines are marked, those that cannot run a model are said."""

from __future__ import annotations

from convoy.bench.estimates import StepTime
from convoy.bench.machine import Rates
from convoy.bench.measure import Measurement, Timing
from convoy.bench.page import study_content
from convoy.bench.study import Settings, Study
from convoy.report.pages.page import make_page


def timing(engine: str, error: float) -> Timing:
    return Timing(engine, 2.0, 1.5, 2.0, 2.5, 3.0, 500.0, 0.1, 1.0, 10, error)


def test_wrong_engines_are_marked_and_those_that_cannot_are_said() -> None:
    timings = (timing("convoy", 1e-6), timing("onnxruntime", 0.5), timing("openvino", float("nan")))
    measurement = Measurement(timings, {"ncnn": "no <op>"}, None, Rates(1e11, 1e10))
    settings = Settings(("convoy", "onnxruntime", "openvino", "ncnn"))
    study = Study(
        "2026-11-24 00:00:00", "convoy bench", "a CPU", 2, settings, {"onnx": "1"}, (0.0, 0.0),
        {"net.onnx": measurement}, {"other.onnx": "refused"},
    )  # fmt: skip
    content = study_content(study)
    (model,) = content["engines"]
    assert model["steps"] == []
    assert [(e["engine"], e["wrong"]) for e in model["engines"]] == [
        ("convoy", False), ("onnxruntime", True), ("openvino", True), ("ncnn", False),
    ]  # fmt: skip
    assert "wrong outputs" in model["engines"][1]["more"]
    assert "other.onnx: refused" in content["summary"]
    assert "no \\u003cop\\u003e" in make_page(content)


def test_steps_that_were_timed_are_on_the_page() -> None:
    steps = (StepTime("conv2d a", "direct", 2.0, 3.0),)
    measurement = Measurement((timing("convoy", 1e-6),), {}, None, Rates(1e11, 1e10), steps=steps)
    study = Study(
        "2026-11-24 00:00:00", "convoy bench", "a CPU", 2, Settings(("convoy",)), {}, (0.0, 0.0),
        {"net.onnx": measurement}, {},
    )  # fmt: skip
    (model,) = study_content(study)["engines"]
    (step,) = model["steps"]
    assert (step["text"], step["estimate"], step["measured"]) == ("direct: conv2d a", 2e-3, 3e-3)
