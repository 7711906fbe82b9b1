"""zoo: the built networks, scaled down, are one region and agree with ONNX Runtime; their sizes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np
import onnx
import pytest

import convoy
from convoy import zoo
from convoy.bench.accuracy import BOUND, compare_outputs, reference_outputs
from convoy.bench.inputs import seeded_inputs
from convoy.deploy.runner import Runner, arrays
from convoy.report.decision import Report
from convoy.zoo.attention import bert, swin, vit, whisper
from convoy.zoo.mobilevit import mobilevit
from convoy.zoo.sequences import crnn, lstm
from convoy.zoo.volumes import r3d, unet3d
from convoy.zoo.yolo import yolo

SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    "vit": partial(vit, "vit", width=48, heads=3, layers=2, size=64),
    "bert": partial(bert, "bert", tokens=10, width=48, heads=3, layers=2, words=30),
    "whisper": partial(whisper, "whisper", steps=40, width=48, heads=3, layers=1),
    "swin": partial(swin, "swin", size=56, width=32, depths=(2, 1)),
    "mobilevit": partial(mobilevit, "mobilevit", size=64, stages=((32, 32, 1), (32, 48, 1))),
    "yolo": partial(yolo, "yolo", size=64, width=4),
    "lstm": partial(lstm, "lstm", steps=9, given=20, cells=24),
    "crnn": partial(crnn, "crnn", width=40, channels=8, cells=20),
    "r3d": partial(r3d, "r3d", frames=4, size=24, width=8),
    "unet3d": partial(unet3d, "unet3d", size=16, width=4, levels=2),
}
LEFT = {"bert": {"astype", "take", "less", "add", "where", "reshape"}}
"""What TVM may keep: rows of a table that tokens choose, and a mask of whole numbers."""
PARAMETERS = {
    "deit_tiny": 5.7e6, "mobilevit_s": 5.6e6, "yolov8n_320": 3.2e6, "whisper_tiny": 8.2e6, "crnn": 8.3e6,
}  # fmt: skip
"""As published, of networks that load in a moment."""


@pytest.mark.parametrize("name", SMALL)
def test_a_small_one_agrees_with_onnx_runtime(name: str, tmp_path) -> None:
    model, report = SMALL[name](), Report()
    inputs = seeded_inputs(model)
    reference = reference_outputs(model, inputs)
    convoy.compile(model, report=report).export_library(str(tmp_path / "net.so"))
    runner = Runner(tmp_path / "net.so")
    runner.bind(list(inputs.values()))
    found = arrays(runner.call())
    assert {str(refusal.node).split()[0] for refusal in report.refusals} <= LEFT.get(name, set())
    assert len(report.regions) == 1
    assert report.flops_share == 1 if name not in LEFT else report.flops_share > 0.999
    for difference in compare_outputs([o.name for o in model.graph.output], found, reference):
        assert difference.spread > 0
        assert difference.relative <= BOUND, difference


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_network_has_as_many_weights_as_published(name: str) -> None:
    model = zoo.load(name)
    onnx.checker.check_model(model)
    weights = sum(prod(i.dims) for i in model.graph.initializer if i.data_type == onnx.TensorProto.FLOAT)
    assert weights == pytest.approx(PARAMETERS[name], rel=0.02)


def test_names_are_none_of_the_others_and_each_loads_the_same() -> None:
    assert not set(zoo.names()) & set(zoo.built_names())
    assert zoo.load("lstm").SerializeToString() == zoo.load("lstm").SerializeToString()
    first = zoo.load("lstm").graph.initializer[0]
    assert np.frombuffer(first.raw_data, np.float32).std() == pytest.approx(128**-0.5, rel=0.05)
