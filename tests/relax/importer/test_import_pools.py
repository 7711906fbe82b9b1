"""Pools at the edges of their maps, against ONNX Runtime: many nodes in one model."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from convoy.errors import ModelError
from convoy.relax.importer import load

Attributes = dict[str, Any]
KERNELS = ([2, 2], [3, 3], [5, 5], [7, 2])
PADS = ([0] * 4, [1] * 4, [0, 1, 2, 1], [2] * 4)


def pool_model(make_model, cases: list[tuple[str, Attributes]], shape: tuple[int, ...]):
    nodes = [
        helper.make_node(op, ["x"], [f"y{i}"], **attributes) for i, (op, attributes) in enumerate(cases)
    ]
    return make_model(nodes, {"x": shape}, outputs=[f"y{i}" for i in range(len(cases))], opset=22)


def cases_of(op: str, shape: tuple[int, int]) -> list[tuple[str, Attributes]]:
    """Every combination whose padding is smaller than the kernel and that has a window at all."""
    found = []
    for kernel, pads, stride, dilation, ceil, counted in itertools.product(
        KERNELS, PADS, (1, 2, 3), (1, 2), (0, 1), (0, 1)
    ):
        reach = [(k - 1) * dilation + 1 for k in kernel]
        lacking = max(
            r - d - pads[i] - pads[i + 2] for i, (r, d) in enumerate(zip(reach, shape, strict=True))
        )
        if max(p - k for p, k in zip(pads, kernel * 2, strict=True)) >= 0 or lacking >= stride:
            continue
        more = {"count_include_pad": counted} if op == "AveragePool" else {}
        if counted <= len(more):
            steps = {"strides": [stride] * 2, "dilations": [dilation] * 2, "ceil_mode": ceil}
            found.append((op, {"kernel_shape": kernel, "pads": pads, **steps, **more}))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_windows_at_the_edge_are_onnx_runtimes(op: str, make_model, run_tvm, run_onnx, rng) -> None:
    # the first lacks one row of a window of five, and is still one: (4 - 5) / 2 is 0 in C
    shape = (1, 2, 4, 6)
    lacking = {"kernel_shape": [3, 3], "strides": [2, 2], "dilations": [2, 2]}
    cases = [(op, lacking), (op, {**lacking, "auto_pad": "VALID"}), *cases_of(op, shape[2:])[::3]]
    assert len(cases) > 30
    model = pool_model(make_model, cases, shape)
    x = rng.standard_normal(shape).astype("float32") - 3
    for case, mine, expected in zip(cases, run_tvm(load(model), x), run_onnx(model, x), strict=True):
        assert mine.shape == expected.shape, case
        np.testing.assert_allclose(mine, expected, rtol=1e-4, atol=1e-5, err_msg=str(case))


@pytest.mark.parametrize("opset", [11, 18, 19])
@pytest.mark.parametrize("counted", [0, 1])
def test_a_mean_divides_a_window_that_lacks_pixels_as_its_opset_does(
    opset: int, counted: int, make_model, run_tvm, run_onnx, rng
) -> None:
    # before opset 19 by all taps where padding is counted, even by those beyond it
    windows = [([5, 3], [2, 2], [0] * 4), ([6, 4], [3, 2], [1, 0, 0, 1]), ([2, 3], [1, 1], [0, 1, 0, 1])]
    nodes = [
        helper.make_node(
            "AveragePool", ["x"], [f"y{i}"], kernel_shape=kernel, strides=strides, pads=pads,
            count_include_pad=counted,
        )
        for i, (kernel, strides, pads) in enumerate(windows)
    ]  # fmt: skip
    shape, outputs = (1, 2, 4, 6), [f"y{i}" for i in range(len(nodes))]
    model = make_model(nodes, {"x": shape}, outputs=outputs, opset=opset)
    x = rng.random(shape, "float32")
    for mine, expected in zip(run_tvm(load(model), x), run_onnx(model, x), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("op", "attributes"),
    [("AveragePool", {"count_include_pad": 1}), ("AveragePool", {}), ("MaxPool", {}), ("LpPool", {})],
)
def test_same_says_how_many_windows_there_are_whatever_ceil_mode_says(
    op: str, attributes: Attributes, make_model, run_tvm, run_onnx, rng
) -> None:
    attributes |= {"kernel_shape": [3, 4], "strides": [3, 2], "auto_pad": "SAME_UPPER", "ceil_mode": 1}
    pool = helper.make_node(op, ["x"], ["y"], **attributes)
    compiled = load(model := make_model([pool], {"x": [1, 3, "h", "w"]}, opset=18 + 4 * (op == "LpPool")))
    for sides in ((8, 8), (9, 5), (4, 7)):
        x = rng.random((1, 3, *sides), "float32")
        np.testing.assert_allclose(run_tvm(compiled, x)[0], run_onnx(model, x)[0], rtol=1e-5)


CEILS: dict[str, tuple[str, Attributes]] = {
    "shorter than its stride": ("MaxPool", {"kernel_shape": [2, 2], "strides": [3, 3]}),
    "shorter along one axis": ("MaxPool", {"kernel_shape": [2, 3], "strides": [3, 2]}),
    "of one pixel": ("AveragePool", {"kernel_shape": [1, 1], "strides": [2, 4]}),
    "padded": ("AveragePool", {"kernel_shape": [3, 3], "strides": [3, 4], "pads": [1, 2, 1, 0]}),
    "counting what is padded, which is nothing": (
        "AveragePool",
        {"kernel_shape": [1, 2], "strides": [1, 3], "count_include_pad": 1},
    ),
    "counting what is padded": (
        "AveragePool",
        {"kernel_shape": [3, 3], "strides": [3, 2], "pads": [1, 2, 1, 0], "count_include_pad": 1},
    ),
    "dilated": ("MaxPool", {"kernel_shape": [2, 2], "strides": [4, 2], "dilations": [2, 1]}),
    "as long as its stride": ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "longer than its stride": ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2]}),
}


@pytest.mark.parametrize("case", CEILS)
def test_ceil_mode_of_open_sizes_has_no_window_behind_the_map(
    case: str, make_model, run_tvm, run_onnx, rng
) -> None:
    # TVM's condition in the shape did not compile where an op of its own read the pool
    op, attributes = CEILS[case]
    pool = helper.make_node(op, ["x"], ["p"], ceil_mode=1, **attributes)
    model = make_model([pool, helper.make_node("Hardmax", ["p"], ["y"], axis=1)], {"x": [1, 3, "h", "w"]})
    compiled = load(model)
    for sides in ((7, 9), (8, 8), (9, 7), (4, 10)):
        x = rng.standard_normal((1, 3, *sides)).astype(np.float32)
        np.testing.assert_array_equal(run_tvm(compiled, x)[0], run_onnx(model, x)[0])


@pytest.mark.slow
@pytest.mark.parametrize("case", CEILS)
def test_ceil_mode_has_no_condition_in_a_shape_of_sizes_that_data_say(
    case: str, make_model, run_tvm, run_onnx, rng
) -> None:
    # NFNet: TVM did not see that no window starts behind a map that was padded so and halved twice
    op, attributes = CEILS[case]
    filters = {"w": rng.standard_normal((3, 3, 3, 3)).astype(np.float32)}
    nodes = [
        helper.make_node("Pad", ["x", "widths"], ["a"]),
        helper.make_node("Conv", ["a", "w"], ["b"], strides=[2, 2]),
        helper.make_node("Pad", ["b", "widths"], ["c"]),
        helper.make_node("Conv", ["c", "w"], ["d"], strides=[2, 2]),
        helper.make_node(op, ["d"], ["p"], ceil_mode=1, **attributes),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    model = make_model(nodes, {"x": [1, 3, "h", "w"], "widths": [8]}, filters)
    model.graph.input[1].type.tensor_type.elem_type = TensorProto.INT64
    compiled, widths = load(model), np.array([0, 0, 3, 2, 0, 0, 2, 3])
    assert "if_then_else" not in compiled["main"].script()
    for sides in ((17, 9), (8, 18), (19, 27)):
        x = rng.standard_normal((1, 3, *sides)).astype(np.float32)
        (found,), (wanted,) = run_tvm(compiled, x, widths), run_onnx(model, x, widths)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def test_places_are_those_of_the_windows_there_are(make_model, run_tvm, run_onnx, rng) -> None:
    attributes = {"kernel_shape": [2, 2], "strides": [3, 3], "ceil_mode": 1}
    pool = helper.make_node("MaxPool", ["x"], ["y", "i"], **attributes)
    model = make_model([pool], {"x": [1, 3, "h", "w"]}, outputs=["y", "i"])
    model.graph.output[1].type.tensor_type.elem_type = TensorProto.INT64
    x = rng.standard_normal((1, 3, 7, 9)).astype(np.float32)
    for found, wanted in zip(run_tvm(load(model), x), run_onnx(model, x), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
def test_a_window_that_lacks_a_whole_step_is_refused(op: str, make_model) -> None:
    model = pool_model(make_model, [(op, {"kernel_shape": [7, 2], "strides": [3, 1]})], (1, 2, 4, 6))
    problem = f"{op} y0: expected a window no larger than the padded map of 4, got 7; pad the map"
    with pytest.raises(ModelError, match=problem):
        load(model)
