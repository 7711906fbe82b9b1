"""Units of quantised answers: what may be off, and what may not; ``convoy check`` of such a network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from command import Result
from convoy import backend
from convoy.bench.units import count_units, find_scales, is_quantised, unit_of
from convoy.codegen.writer import Writer
from convoy.plan.step import Step

Command = Callable[..., Result]

random = np.random.default_rng(4)


def network() -> onnx.ModelProto:
    """Two quantised convolutions, and a product of what is left."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        net (float[2,3,8,8] x) => (float[2,10] y) <float s = {0.03}, uint8 z = {120}, float t = {0.02},
            uint8 u = {0}, float o = {0.05}, uint8 p = {127}> {
            xq = QuantizeLinear (x, s, z)
            xf = DequantizeLinear (xq, s, z)
            c = Conv <pads = [1,1,1,1]> (xf, w)
            r = Relu (c)
            cq = QuantizeLinear (r, t, u)
            cf = DequantizeLinear (cq, t, u)
            d = Conv (cf, v)
            flat = Flatten (d)
            yq = QuantizeLinear (flat, o, p)
            yf = DequantizeLinear (yq, o, p)
            y = Flatten (yf) }""")
    for name, shape in (("w", (8, 3, 3, 3)), ("v", (10, 8, 8, 8))):
        weight = random.integers(-127, 128, shape).astype(np.float32) * np.float32(0.002)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weight, name))
    return model


def test_a_network_is_quantised_by_its_ops() -> None:
    assert is_quantised(network())
    plain = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        net (float[2] x) => (float[2] y) <int8 w = {3}, float s = {0.1}> {
            wf = DequantizeLinear (w, s)
            y = Mul (x, wf) }""")
    assert not is_quantised(plain), "weights of integers alone are none"


def test_units_are_the_scales_of_bytes_or_parts_of_the_range() -> None:
    scales = find_scales(network())
    assert {name: scales[name] for name in ("xf", "cf", "y", "r")} == pytest.approx(
        {"xf": 0.03, "cf": 0.02, "y": 0.05, "r": 0.02}
    )
    assert "c" not in scales
    by_dtype = {
        dtype: unit_of(np.array([-255, 255], dtype), None) for dtype in ("float32", "int32", "int64")
    }
    assert by_dtype == {"float32": 2, "int32": 2, "int64": 1}  # int32: sums of products
    assert unit_of(np.array([0, 9], np.int32), None) == 1


def answer() -> np.ndarray:
    return (random.integers(-100, 100, (2, 10)) * np.float32(0.05)).astype(np.float32)


def test_units_at_ties_pass_and_more_do_not() -> None:
    want = answer()
    near, far = want.copy(), want.copy()
    near[0, 3] += np.float32(0.05)
    far[0, 3] += np.float32(0.15)
    (found,) = count_units(network(), [near], [want])
    assert (round(found.largest), found.share, found.passed) == (1, 0.05, True)
    assert found.cosine > 0.999
    (found,) = count_units(network(), [far], [want])
    assert (round(found.largest), found.passed) == (3, False)
    (found,) = count_units(network(), [far], [want], [want - np.float32(0.1)])
    assert found.passed, "ONNX Runtime's own answers are two units apart"
    (found,) = count_units(network(), [-want], [want], [-want])
    assert not found.passed, "another answer altogether"


@pytest.mark.filterwarnings("error")
def test_infinities_and_nan_at_the_same_places_agree() -> None:
    reference = np.float32([[-np.inf, np.nan, 1.0, 0.5, np.inf]])
    (same,) = count_units(network(), [reference.copy()], [reference])
    assert same.passed
    assert (same.largest, same.share) == (0.0, 0.0)
    assert unit_of(reference, None) == pytest.approx(0.5 / 255), "of the range of what is finite"
    for place in range(5):
        other = reference.copy()
        other[0, place] = -7.0 if place in (0, 1, 4) else np.nan
        (units,) = count_units(network(), [other], [reference])
        assert units.elsewhere == 1
        assert not units.passed
        assert units.verdict == "1 not as finite"
        assert "got 1 of 5 numbers otherwise, and 0 between its own two answers; a unit" in units.problem


@pytest.mark.filterwarnings("error")
def test_infinities_may_be_elsewhere_as_they_are_in_their_own_answers() -> None:
    # of Log of a byte that is 0 or 1: with such answers any error passed, as all were 0 of infinity
    want = np.tile(np.arange(1.0, 6.0, dtype="float32"), (2, 2))
    ours, theirs = want.copy(), want.copy()
    ours[0, 0] = ours[0, 5] = theirs[1, 0] = -np.inf
    (found,) = count_units(network(), [ours], [want], [theirs])
    assert (found.elsewhere, found.own_elsewhere, found.largest) == (2, 1, 0.0)
    assert found.passed
    far = ours.copy()
    far[1, 4] += np.float32(3)
    (found,) = count_units(network(), [far], [want], [theirs])
    assert not found.passed
    assert np.isfinite(found.allowed)
    ours[1, 5] = -np.inf
    (found,) = count_units(network(), [ours], [want], [theirs])
    assert not found.passed


def test_the_angle_may_be_what_that_of_their_own_answers_is() -> None:
    unit = np.float32(0.05)
    want = np.tile(2 * unit * np.array([1, -1], np.float32), (2, 5))
    ours, theirs = want.copy(), want.copy()
    ours[:, ::2] += unit
    theirs[:, 1::2] -= unit
    (found,) = count_units(network(), [ours], [want], [theirs])
    assert 0.98 < found.cosine < 0.99
    assert found.verdict == "ok"
    (found,) = count_units(network(), [ours], [want])
    assert found.verdict == "cosine below 0.99"
    assert "a cosine of 0.99 or more, got 1 and 0.98058" in found.problem


def test_classes_are_compared() -> None:
    want = answer()
    want[:, 4] = 9
    other = want.copy()
    other[1, 5] = 9.05
    (found,) = count_units(network(), [other], [want])
    assert found.top == 0.5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


@pytest.mark.slow
def test_check_judges_a_quantised_network_by_units(convoy_command: Command, path: Path) -> None:
    result = convoy_command("check", path, "--layers")
    assert result.code == 0, result
    assert "cosine" in result.out
    assert "units" in result.out


@pytest.mark.slow
def test_check_finds_the_layer_that_is_off(
    convoy_command: Command, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emit = backend.emit_step

    def broken(step: Step, writer: Writer) -> str:
        """Bytes are quantised with a tenth of their scale."""
        return emit(step, writer).replace("0.019999999552965164f", "0.002f")

    monkeypatch.setattr(backend, "emit_step", broken)
    result = convoy_command("check", path, "--layers")
    assert result.code == 1, result
    assert "expected at most" in result.err
    assert (
        "the first tensor that is off: cf" in result.err or "the first tensor that is off: cq" in result.err
    )


@pytest.mark.slow
def test_a_float_network_is_judged_as_before(convoy_command: Command, model: Any) -> None:
    result = convoy_command("check", model)
    assert result.code == 0, result
    assert "units" not in result.out
