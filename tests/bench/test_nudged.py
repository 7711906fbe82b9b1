"""How far ONNX Runtime's own answer moves with weights that do: what another right answer may be off by."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from convoy.bench.accuracy import reference_outputs
from convoy.bench.nudged import allow_for_ties, nudge_weights, own_movement
from convoy.bench.units import count_units

SCALE = np.float32(0.125)


def cliff() -> onnx.ModelProto:
    """Bytes, eight times as large, are bytes again: what falls at a tie is eight units behind it."""
    return parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        net (float[1,64] x) => (float[1,64] y) <float s = {0.125}, int8 z = {0}, float t = {8}> {
            q = QuantizeLinear (x, s, z)
            f = DequantizeLinear (q, s, z)
            m = Mul (f, t)
            p = QuantizeLinear (m, s, z)
            y = DequantizeLinear (p, s, z) }""")


@pytest.mark.parametrize(("part", "passes"), [(0.5, True), (0.25, False)])
def test_a_byte_at_a_tie_falls_either_way(part: float, passes: bool) -> None:
    model, whole = cliff(), np.arange(-7, 7, dtype=np.float32).repeat(5)[None, :64]
    inputs = {"x": (whole + np.float32(part)) * SCALE}
    written = reference_outputs(model, inputs)
    ours = written[0].copy()
    ours[0, 0] += 8 * SCALE
    (units,) = count_units(model, [ours], written, written)
    assert (units.largest, units.own, units.passed) == (8.0, 0.0, False)
    (units,) = allow_for_ties(model, inputs, written, [units])
    assert units.passed is passes
    assert (units.own > 7) is passes


def test_a_tie_between_bytes_of_one_scale_falls_either_way() -> None:
    # half of a step is at a tie of the same scale, however far that moves
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        net (float[1,1,64] x) => (float[1,1,32] y) <float s = {0.125}, int8 z = {0}, float t = {8}> {
            q = QuantizeLinear (x, s, z)
            f = DequantizeLinear (q, s, z)
            a = AveragePool <kernel_shape = [2], strides = [2]> (f)
            m = QuantizeLinear (a, s, z)
            n = DequantizeLinear (m, s, z)
            e = Mul (n, t)
            p = QuantizeLinear (e, s, z)
            y = DequantizeLinear (p, s, z) }""")
    steps = np.tile([0, 1, 15, 15], 16)
    inputs = {"x": steps[None, None].astype(np.float32) * SCALE}
    written = reference_outputs(model, inputs)
    ours = written[0].copy()
    ours[0, 0, 0] += 8 * SCALE
    (units,) = allow_for_ties(model, inputs, written, count_units(model, [ours], written, written))
    assert units.passed
    assert units.own > 7


def test_an_answer_that_passes_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    model, inputs = cliff(), {"x": np.full((1, 64), 0.0625, np.float32)}
    written = reference_outputs(model, inputs)
    units = count_units(model, written, written)
    monkeypatch.setattr("convoy.bench.nudged.reference_outputs", None)  # nobody asks it
    assert allow_for_ties(model, inputs, written, units) is units


def test_what_tells_an_op_what_to_do_does_not_move() -> None:
    # of a cubic Resize whose scales had moved ONNX Runtime says that it has none
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        net (float[1,2,4,4] x) => (float[1,2,8,8] y)
        <float[4] scales = {1, 1, 2, 2}, float two = {2}, float[1] w = {0.7}> {
            m = Mul (x, w)
            p = Pow (m, two)
            y = Resize <mode = "cubic"> (p, , scales) }""")
    for seed in range(4):
        moved = {t.name: numpy_helper.to_array(t) for t in nudge_weights(model, seed).graph.initializer}
        assert moved["scales"].tolist() == [1, 1, 2, 2]
        assert moved["two"] == 2
    inputs = {"x": np.linspace(-1, 1, 32, dtype=np.float32).reshape(1, 2, 4, 4)}
    assert 0 < own_movement(model, inputs, reference_outputs(model, inputs))["y"] < 1e-5
