"""A fault planted in one kernel is found: by the layers' comparison, and by bisecting."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import Result, tiny_model
from convoy import backend
from convoy.codegen.writer import Writer
from convoy.plan.step import Step

Command = Callable[..., Result]


def long_model() -> onnx.ModelProto:
    """Five convolutions in a row, the third before a batch norm and a leaky ReLU; a dropout; a mean."""
    generator = np.random.default_rng(0)
    nodes, constants, last = [], [], "x"
    for i in range(5):
        weight = generator.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8
        constants.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], name=f"conv{i}", pads=[1] * 4))
        act = ("LeakyRelu", {"alpha": 0.25}) if i == 2 else ("Relu", {})
        source = f"c{i}"
        if i == 2:
            for name, value in (("g", 1.5), ("b", 0.1), ("m", 0.2), ("v", 0.9)):
                constants.append(numpy_helper.from_array(np.full(8, value, np.float32), name))
            nodes.append(helper.make_node("BatchNormalization", ["c2", *"gbmv"], ["n2"], name="norm2"))
            source = "n2"
        nodes.append(helper.make_node(act[0], [source], [f"r{i}"], name=f"act{i}", **act[1]))
        last = f"r{i}"
    nodes.append(helper.make_node("Dropout", [last], ["d", "nobody_reads"], name="drop"))
    nodes.append(helper.make_node("GlobalAveragePool", ["d"], ["y"], name="pool"))
    graph = helper.make_graph(
        nodes,
        "long",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8, 10, 10])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 1, 1])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(long_model(), tmp_path / "long.onnx")
    return tmp_path / "long.onnx"


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaky ReLUs of kernels have another slope."""
    emit = backend.emit_step

    def emit_wrongly(step: Step, writer: Writer) -> str:
        return emit(step, writer).replace("0.25f", "0.5f")

    monkeypatch.setattr(backend, "emit_step", emit_wrongly)


def test_every_inner_tensor_is_compared(convoy_command: Command, path: Path) -> None:
    result = convoy_command("check", path, "--layers", "--threads", "1")
    assert result.code == 0, result.err
    assert not result.error_lines


@pytest.mark.usefixtures("fault")
def test_the_first_tensor_that_is_off_is_named_with_its_kernel(convoy_command: Command, path: Path) -> None:
    result = convoy_command("check", path, "--layers", "--threads", "1")
    assert result.code == 1
    (found,) = (text for text in result.error_lines if "the first tensor that is off" in text)
    assert "r2 of LeakyRelu act2" in found
    assert "conv2d conv2" in found
    assert "leaky_relu" in found


@pytest.mark.slow
@pytest.mark.usefixtures("fault")
def test_bisect_leaves_the_kernel_that_fails(convoy_command: Command, path: Path, tmp_path: Path) -> None:
    result = convoy_command("bisect", path, "-o", tmp_path / "small.onnx", "--threads", "1")
    assert result.code == 0, result.err
    small = onnx.load(tmp_path / "small.onnx")
    onnx.checker.check_model(small)
    assert [node.op_type for node in small.graph.node] == [
        "Conv",
        "LeakyRelu",
    ]  # the one alone would be TVM's
    assert "kernel:" in result.out
    assert "it fails:" in result.out


def test_bisect_reduces_a_model_that_is_refused(
    convoy_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convoy.errors import ModelError
    from convoy.relax import compile as road

    def refuse(report: object) -> object:
        raise ModelError("fold", "gemm0", "expected nothing, got a model", "this is planted")

    monkeypatch.setattr(road, "fold", refuse)
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    result = convoy_command("bisect", tmp_path / "tiny.onnx", "--threads", "1")
    assert result.code == 0, result.err
    assert len(onnx.load(tmp_path / "tiny.small.onnx").graph.node) == 1
    assert "this is planted" in result.out


def test_a_model_that_agrees_is_not_bisected(convoy_command: Command, model: Path) -> None:
    result = convoy_command("bisect", model, "--threads", "1")
    assert result.code == 1
    assert "got one that agrees" in result.err
