"""Whole files of ONNX Runtime's quantiser: no unit further from its integers than ties explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import convoy
from convoy.bench.accuracy import reference_outputs
from convoy.bench.units import count_units
from convoy.report.decision import Report
from convoy.zoo.attention import norm_first
from convoy.zoo.draft import Draft

X = {"x": np.random.default_rng(0).standard_normal((1, 3, 32, 32)).astype(np.float32)}
ROWS = {"x": np.random.default_rng(1).standard_normal((1, 20, 32)).astype(np.float32)}


def images() -> onnx.ModelProto:
    """A residual, a depthwise convolution, a concat of unequal scales, a gate, pools, a dense layer."""
    d = Draft("images", x=(1, 3, 32, 32))
    a = d.conv("x", 3, 24, 3, 2, act="Relu")
    b = d.conv(d.conv(a, 24, 24, 3, act="Relu", groups=24), 24, 24, 1)
    c = d.op("Relu", d.add(b, a))
    e = d.op("Concat", d.conv(c, 24, 16, 1, act="Relu"), d.conv(c, 24, 16, 3, act="Relu"), axis=1)
    f = d.op("MaxPool", e, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    gate = d.op("Sigmoid", d.conv(d.op("GlobalAveragePool", f), 32, 32, 1))
    g = d.op("GlobalAveragePool", d.conv(d.op("Mul", f, gate), 32, 64, 1, act="Silu"))
    return d.model(d.dense(d.op("Flatten", g), 64, 10))


def rows() -> onnx.ModelProto:
    """A block of a transformer."""
    d = Draft("rows", x=(1, 20, 32))
    return d.model(d.dense(norm_first(d, "x", 20, 32, 2), 32, 8))


class Samples(CalibrationDataReader):  # type: ignore[misc]
    def __init__(self, given: Mapping[str, np.ndarray]) -> None:
        self.left = [given]

    def get_next(self) -> Mapping[str, np.ndarray] | None:
        return self.left.pop() if self.left else None


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize(("make", "given"), [(images, X), (rows, ROWS)])
def test_files_of_the_quantiser_agree_with_its_integers(
    make: Callable[[], onnx.ModelProto], given: Mapping[str, np.ndarray], kind: str, tmp_path: Path
) -> None:
    paths = tmp_path / "floats.onnx", tmp_path / "bytes.onnx"
    onnx.save(make(), paths[0])
    if kind == "static":
        quantize_static(*paths, Samples(given), per_channel=True, weight_type=QuantType.QInt8)
    else:
        quantize_dynamic(*paths, per_channel=True, weight_type=QuantType.QInt8)
    model, report = onnx.load(paths[1]), Report()
    library = convoy.compile(model, report=report, threads=1)
    found = convoy.load(library).run(list(given.values()))
    details = [detail.precision for region in report.regions for detail in region.details]
    assert "int8" in details or (make is images and kind == "dynamic")
    integers, written = (reference_outputs(model, dict(given), optimised=whole) for whole in (True, False))
    for one in count_units(model, found, integers, written):
        assert one.largest <= max(1.001, 2 * one.own), one


@pytest.mark.slow
@pytest.mark.parametrize("kind", [QuantFormat.QDQ, QuantFormat.QOperator])
@pytest.mark.parametrize("saved", [False, True])
def test_bytes_between_quantised_ops_stay_in_the_region(
    saved: bool, kind: QuantFormat, tmp_path: Path
) -> None:
    # a MaxPool and a Flatten of bytes; saved for one machine, channels come last
    d = Draft("pooled", x=(1, 3, 32, 32))
    a = d.op("MaxPool", d.conv("x", 3, 16, 3, act="Relu"), kernel_shape=[2, 2], strides=[2, 2])
    b = d.op("MaxPool", d.conv(a, 16, 24, 3, act="Relu"), kernel_shape=[2, 2], strides=[2, 2])
    whole = d.model(d.dense(d.op("Flatten", d.op("GlobalAveragePool", d.conv(b, 24, 32, 1))), 32, 10))
    paths = tmp_path / "floats.onnx", tmp_path / "bytes.onnx"
    onnx.save(whole, paths[0])
    quantize_static(*paths, Samples(X), kind, per_channel=True, weight_type=QuantType.QInt8)
    model = onnx.load(paths[1])
    if saved:
        options = onnxruntime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "saved.onnx")
        onnxruntime.InferenceSession(str(paths[1]), options)
        model = onnx.load(options.optimized_model_filepath)
    report = Report()
    found = convoy.load(convoy.compile(model, report=report, threads=1)).run([X["x"]])
    assert (len(report.regions), report.refusals) == (1, [])
    wanted = reference_outputs(model, dict(X), optimised=True)
    for one in count_units(model, found, wanted, wanted):
        assert one.largest <= 1.001, one
