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
from convoy.zoo.detr import detr
from convoy.zoo.edgenext import edgenext
from convoy.zoo.efficientformer import efficientformer
from convoy.zoo.fastvit import fastvit
from convoy.zoo.levit import levit
from convoy.zoo.mobilenet_v4 import ATTENTION, mobilenet_v4
from convoy.zoo.mobilevit import mobilevit
from convoy.zoo.ocr import recogniser
from convoy.zoo.sequences import crnn, lstm
from convoy.zoo.volumes import r3d, unet3d
from convoy.zoo.yolo import yolo
from convoy.zoo.yolo11 import yolo11

SMALL: dict[str, Callable[[], onnx.ModelProto]] = {
    "vit": partial(vit, "vit", width=48, heads=3, layers=2, size=64),
    "bert": partial(bert, "bert", tokens=10, width=48, heads=3, layers=2, words=30),
    "whisper": partial(whisper, "whisper", steps=40, width=48, heads=3, layers=1),
    "swin": partial(swin, "swin", size=56, width=32, depths=(2, 1)),
    "mobilevit": partial(mobilevit, "mobilevit", size=64, stages=((32, 32, 1), (32, 48, 1))),
    "edgenext": partial(
        edgenext, "edgenext", size=64, stages=((16, 1, 3, 0), (24, 1, 5, 2), (40, 1, 7, 3))
    ),
    "levit": partial(levit, "levit", size=80, stages=((32, 2, 1), (48, 3, 1))),
    "efficientformer": partial(efficientformer, "efficientformer", size=32, stages=((16, 1), (24, 1))),
    "fastvit": partial(fastvit, "fastvit", size=32, stages=((16, 1), (32, 1))),
    "mobilenet_v4": partial(
        mobilenet_v4,
        "mobilenet_v4",
        size=64,
        stages=((24, 2, ((3, 5, 4), ATTENTION, (3, 0, 4))), (32, 1, ((5, 5, 6), (0, 0, 2), ATTENTION))),
    ),
    "yolo": partial(yolo, "yolo", size=64, width=4),
    "yolo11": partial(yolo11, "yolo11", size=64, width=8),
    "detr": partial(
        detr,
        "detr",
        size=(64, 96),
        channels=8,
        blocks=(1, 1, 1, 1),
        width=32,
        heads=4,
        inner=40,
        layers=1,
        queries=5,
    ),
    "ocr": partial(
        recogniser,
        "ocr",
        size=64,
        width=40,
        letters=50,
        blocks=(
            (3, 24, (2, 1), False),
            (5, 32, (1, 2), True),
            (3, 40, (2, 1), False),
            (3, 40, (2, 1), False),
        ),
    ),
    "lstm": partial(lstm, "lstm", steps=9, given=20, cells=24),
    "crnn": partial(crnn, "crnn", width=40, channels=8, cells=20),
    "r3d": partial(r3d, "r3d", frames=4, size=24, width=8),
    "unet3d": partial(unet3d, "unet3d", size=16, width=4, levels=2),
}
LEFT = {"bert": {"astype", "take", "less", "add", "where", "reshape"}}
"""What TVM may keep: rows of a table that tokens choose, and a mask of whole numbers."""
PARAMETERS = {
    "deit_tiny": 5.7e6, "mobilevit_s": 5.6e6, "yolov8n_320": 3.2e6, "whisper_tiny": 8.2e6, "crnn": 8.3e6,
    "edgenext_s": 5.6e6, "levit_128s": 7.8e6, "efficientformer_l1": 12.3e6, "fastvit_t8": 4.0e6,
    "mobilenet_v4_hybrid": 11.1e6, "yolo11n_320": 2.6e6, "detr_r50": 41.5e6, "ppocr_v4": 2.7e6,
}  # fmt: skip
"""As published, of networks that load in a moment."""


@pytest.mark.slow
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
