"""A fault planted in one kernel is found: by the layers' comparison, and by bisecting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic

from command import Result, tiny_model
from convoy import backend, profile
from convoy.codegen.writer import Writer
from convoy.plan.step import Step
from convoy.report.decision import name_nodes

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


def quantised_model() -> onnx.ModelProto:
    """Three convolutions in bytes, the second before a leaky ReLU, each map rounded to bytes."""
    generator = np.random.default_rng(0)
    nodes, constants = [], []

    def constant(name: str, value: object) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def bytes_of(source: str, zero: int) -> str:
        """dequantize(quantize(source))"""
        by = [constant(f"{source}_scale", np.float32(0.04)), constant(f"{source}_zero", np.uint8(zero))]
        nodes.append(helper.make_node("QuantizeLinear", [source, *by], [f"{source}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{source}_q", *by], [f"{source}_d"]))
        return f"{source}_d"

    last = bytes_of("x", 128)
    for i in range(3):
        weight = constant(f"w{i}", generator.integers(-127, 128, (16, 16, 3, 3)).astype(np.int8))
        by = [constant(f"ws{i}", np.float32(0.001)), constant(f"wz{i}", np.int8(0))]
        nodes.append(helper.make_node("DequantizeLinear", [weight, *by], [f"wd{i}"]))
        nodes.append(helper.make_node("Conv", [last, f"wd{i}"], [f"c{i}"], name=f"conv{i}", pads=[1] * 4))
        act = ("LeakyRelu", {"alpha": 0.25}) if i == 1 else ("Relu", {})
        nodes.append(helper.make_node(act[0], [f"c{i}"], [f"r{i}"], name=f"act{i}", **act[1]))
        last = bytes_of(f"r{i}", 64 if i == 1 else 0)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16, 10, 10]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "quantised", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@dataclass(frozen=True)
class Network:
    """Whose leaky ReLU stands after a convolution, in a kernel of this precision."""

    model: Callable[[], onnx.ModelProto]
    options: tuple[str, ...]
    off: str
    """The first tensor that is off."""
    kernel: str


NETWORKS = {
    "float32": Network(long_model, (), "r2 of LeakyRelu act2", "conv2d conv2"),
    "bf16": Network(long_model, ("--precision", "bf16"), "r2 of LeakyRelu act2", "conv2d conv2"),
    "int8": Network(quantised_model, (), "r1 of LeakyRelu act1", "conv2d conv1"),
}


@pytest.fixture(params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Network:
    return NETWORKS[request.param]


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


@pytest.mark.slow
def test_every_inner_tensor_is_compared(network: Network, convoy_command: Command, path: Path) -> None:
    onnx.save(network.model(), path)
    result = convoy_command("check", path, "--layers", "--threads", "1", *network.options)
    assert result.code == 0, result.err
    assert not result.error_lines


@pytest.mark.slow
def test_every_inner_tensor_of_what_is_quantised_as_it_runs_is_compared(
    convoy_command: Command, path: Path, tmp_path: Path
) -> None:
    # sums of bytes, and scales of no axes: the first were refused, the others had four axes
    made = tmp_path / "dynamic.onnx"
    quantize_dynamic(path, made)
    result = convoy_command("check", made, "--layers", "--threads", "1")
    assert result.code == 0, result.err
    assert "ConvInteger conv0_quant" in result.out


@pytest.mark.slow
@pytest.mark.usefixtures("fault")
def test_the_first_tensor_that_is_off_is_named_with_its_kernel(
    network: Network, convoy_command: Command, path: Path
) -> None:
    onnx.save(network.model(), path)
    result = convoy_command("check", path, "--layers", "--threads", "1", *network.options)
    assert result.code == 1
    (found,) = (text for text in result.error_lines if "the first tensor that is off" in text)
    assert network.off in found
    assert network.kernel in found


@pytest.mark.slow
@pytest.mark.parametrize("network", [NETWORKS["float32"], NETWORKS["int8"]], ids=["float32", "int8"])
@pytest.mark.usefixtures("fault")
def test_bisect_leaves_the_kernel_that_fails(
    network: Network, convoy_command: Command, path: Path, tmp_path: Path
) -> None:
    onnx.save(network.model(), path)
    result = convoy_command(
        "bisect", path, "-o", tmp_path / "small.onnx", "--threads", "1", *network.options
    )
    assert result.code == 0, result.err
    small = onnx.load(tmp_path / "small.onnx")
    onnx.checker.check_model(small)
    kinds = [node.op_type for node in small.graph.node if "Linear" not in node.op_type]
    assert kinds == ["Conv", "LeakyRelu"]  # the one alone would be TVM's
    assert "kernel:" in result.out
    assert "it fails:" in result.out
    assert ("off Convoy's and" in result.out) is (kinds == [node.op_type for node in small.graph.node])
    assert "Convoy is right" not in result.out


@pytest.mark.parametrize("ended", [True, False])
def test_bisect_reduces_a_model_that_is_refused(
    ended: bool, convoy_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convoy.errors import ModelError
    from convoy.relax import compile as road

    def refuse(report: object) -> object:
        raise ModelError("fold", "gemm0", "expected nothing, got a model", "this is planted")

    monkeypatch.setattr(road, "fold", refuse)
    onnx.save(tiny_model(), tmp_path / "tiny.onnx")
    minutes = "10" if ended else "0"
    result = convoy_command("bisect", tmp_path / "tiny.onnx", "--threads", "1", "--minutes", minutes)
    assert result.code == 0, result.err
    nodes = onnx.load(tmp_path / "tiny.small.onnx").graph.node
    assert len(nodes) == (1 if ended else len(tiny_model().graph.node))
    assert len(tiny_model().graph.node) > 1
    assert ("time was up" in result.out) is not ended
    assert "this is planted" in result.out


@pytest.mark.slow
def test_a_model_that_agrees_is_not_bisected(convoy_command: Command, path: Path) -> None:
    model = tiny_model()
    model.graph.output.append(onnx.ValueInfoProto(name="r"))  # an inner tensor, of which no type is said
    onnx.save(model, path)
    result = convoy_command("bisect", path, "--threads", "1")
    assert result.code == 1
    assert "got one that agrees" in result.err


@pytest.mark.slow
def test_a_profile_of_bytes_names_and_counts_its_convolutions() -> None:
    parts = [part for part in profile(quantised_model(), seconds=0.1).parts if part.kind == "step"]
    flops = {name_nodes(part.nodes): part.flops for part in parts if part.flops}
    assert list(flops) == ["conv2d conv0", "conv2d conv1, leakyrelu act1", "conv2d conv2"]
    assert all(count >= 2 * 16 * 16 * 9 * 100 for count in flops.values())
    assert "dequantize r2_d" in {name_nodes(part.nodes) for part in parts}  # where there is no other
