"""``convoy check`` of outputs that are the same everywhere."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from convoy.bench.accuracy import reference_outputs
from convoy.bench.inner import blind_outputs
from convoy.bench.nudged import own_movement

Command = Callable[..., Any]


def write(
    path: Path,
    *last: onnx.NodeProto,
    weight: float = 1.0,
    channels: tuple[int, int] = (3, 4),
    side: int = 8,
) -> Path:
    """x -> Conv -> c -> last nodes -> y."""
    read, made = channels
    drawn = np.random.default_rng(0).standard_normal((made, read, 3, 3))
    values = drawn.astype("float32") * np.float32(weight)
    shapes = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s)
        for n, s in (("x", [1, read, side, side]), ("y", None))
    ]
    low = [numpy_helper.from_array(np.float32(-1e6), name) for name in ("low", "as low")]
    constants = [numpy_helper.from_array(values, "w"), *low]
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"]), *last]
    graph = helper.make_graph(nodes, "net", shapes[:1], shapes[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.slow
def test_inner_tensors_stand_in_for_a_dead_output(convoy_command: Command, tmp_path: Path) -> None:
    # all that reaches the ReLU is below zero
    last = [helper.make_node("Add", ["c", "low"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    result = convoy_command("check", write(tmp_path / "dead.onnx", *last))
    assert result.code == 0, result
    assert "y: one value throughout; that it agrees proves nothing" in result.out
    assert "inner tensors compared in its place: c\n" in result.out  # a is a million, nearly


def write_head(path: Path, scale: float) -> Path:
    """x -> Conv -> c -> Relu -> r -> times a scale -> s -> Add of another bias for each channel -> y."""
    path = write(
        path,
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Mul", ["r", "scale"], ["s"]),
        helper.make_node("Add", ["s", "bias"], ["y"]),
    )
    model = onnx.load(path)
    bias = np.random.default_rng(1).standard_normal((1, 4, 1, 1)).astype("float32")
    model.graph.initializer.extend(
        [numpy_helper.from_array(np.float32(scale), "scale"), numpy_helper.from_array(bias, "bias")]
    )
    onnx.save(model, path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.0, 1e-7])
def test_an_output_that_does_not_hear_its_inputs_proves_nothing(
    convoy_command: Command, tmp_path: Path, scale: float
) -> None:
    # as of a fresh network whose head has weights of zero: it gives its bias, whatever came before
    result = convoy_command("check", write_head(tmp_path / "head.onnx", scale))
    assert result.code == 0, result
    assert "y: hardly changes with the inputs; that it agrees proves nothing" in result.out
    inner = "c, r" if scale == 0 else "c, r, s"  # the sum is no evidence in either
    assert f"inner tensors compared in its place: {inner}\n" in result.out


@pytest.mark.slow
def test_an_output_that_hears_its_inputs_is_compared_alone(convoy_command: Command, tmp_path: Path) -> None:
    result = convoy_command("check", write_head(tmp_path / "head.onnx", 0.1))
    assert result.code == 0, result
    assert "proves nothing" not in result.out
    assert "inner tensors" not in result.out


def test_an_output_that_no_data_reach_is_right_where_it_agrees() -> None:
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Relu", ["x"], ["y"]),
                helper.make_node("Shape", ["x"], ["shape"]),
                helper.make_node("Cast", ["shape"], ["sizes"], to=TensorProto.FLOAT),
                helper.make_node("Mul", ["y", "zero"], ["nothing"]),
                helper.make_node("Add", ["nothing", "table"], ["same"]),
            ],
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "sizes", "same")],
            [
                numpy_helper.from_array(np.float32(0), "zero"),
                numpy_helper.from_array(np.arange(3, dtype="float32"), "table"),
            ],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    inputs = {"x": np.random.default_rng(1).standard_normal((2, 3)).astype("float32")}
    found = blind_outputs(model, inputs, reference_outputs(model, inputs))
    assert found == {"same": "hardly changes with the inputs"}


def test_outputs_of_texts_are_an_error_in_one_line(convoy_command: Command, tmp_path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "net", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "texts.onnx")
    result = convoy_command("check", tmp_path / "texts.onnx")
    assert result.code == 1
    assert result.err.splitlines()[-1].startswith("error: import: "), result
    assert "Traceback" not in result.err


@pytest.mark.slow
def test_where_nothing_varies_nothing_is_right(convoy_command: Command, tmp_path: Path) -> None:
    result = convoy_command(
        "check", write(tmp_path / "zero.onnx", helper.make_node("Relu", ["c"], ["y"]), weight=0)
    )
    assert result.code == 1
    assert "nothing compared" in result.err


@pytest.mark.slow
def test_an_output_that_varies_is_compared_alone(convoy_command: Command, tmp_path: Path) -> None:
    result = convoy_command("check", write(tmp_path / "net.onnx", helper.make_node("Relu", ["c"], ["y"])))
    assert result.code == 0
    assert "proves nothing" not in result.out
    assert "inner tensors" not in result.out


@pytest.mark.slow
def test_an_answer_that_is_rounding_is_said(convoy_command: Command, tmp_path: Path) -> None:
    # most of the sum is what the second op takes away again
    last = [helper.make_node("Add", ["c", "low"], ["a"]), helper.make_node("Sub", ["a", "as low"], ["y"])]
    result = convoy_command("check", write(tmp_path / "cancels.onnx", *last))
    assert result.code == 1, result  # Convoy folds both into nothing, and is the closer to the truth
    assert "y: ONNX Runtime's own answer moves by" in result.out
    verdict = (
        r"y: in float64 the answer is \S+e-0[78] off Convoy's and \S+ off ONNX Runtime's: Convoy is right"
    )
    assert re.search(verdict, result.out)


@pytest.mark.slow
def test_two_gflop_are_few_enough_for_float64(convoy_command: Command, tmp_path: Path) -> None:
    last = [helper.make_node("Add", ["c", "low"], ["a"]), helper.make_node("Sub", ["a", "as low"], ["y"])]
    path = write(tmp_path / "cancels.onnx", *last, weight=0.1, channels=(192, 192), side=58)
    result = convoy_command("check", path)
    assert result.code == 1, result
    assert "off ONNX Runtime's: Convoy is right" in result.out


def test_an_answer_moves_little_with_weights_that_do(tmp_path: Path) -> None:
    model = onnx.load(write(tmp_path / "plain.onnx", helper.make_node("Tanh", ["c"], ["y"])))
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32")}
    moved = own_movement(model, inputs, reference_outputs(model, inputs))
    assert 0 < moved["y"] < 1e-5
