"""zoo: the networks run, depend on their input, and are the same everywhere."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from convoy import zoo
from convoy.errors import ModelError
from convoy.zoo.weights import fill

QUICK = (
    "squeezenet", "shufflenet", "densenet121", "mobilenet_v2", "mnasnet", "efficientnet_b0",
    "deeplabv3", "unet",
)  # fmt: skip
"""Networks that load and run in a fraction of a second; of each way to fill weights."""


def run(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    session = ort.InferenceSession(model.SerializeToString())
    outputs = session.run(None, {session.get_inputs()[0].name: x})
    return [np.asarray(output) for output in outputs]


def data_shape(model: onnx.ModelProto) -> list[int]:
    (data,) = model.graph.input
    return [d.dim_value for d in data.type.tensor_type.shape.dim]


def test_names_are_the_sixteen_networks() -> None:
    assert len(zoo.names()) == len(set(zoo.names())) == 16


def test_unknown_name_is_refused() -> None:
    with pytest.raises(ModelError, match=r"zoo: lenet: expected one of alexnet, .*unet3d, got 'lenet'"):
        zoo.load("lenet")


@pytest.mark.parametrize("name", QUICK)
def test_logits_are_spread_and_depend_on_the_input(name: str) -> None:
    # outputs all alike would hide errors
    model = zoo.strip_softmax(zoo.load(name))
    rng = np.random.default_rng(0)
    first = rng.standard_normal(data_shape(model), np.float32)
    second = rng.uniform(0, 1, first.shape).astype(np.float32)
    (a,), (b,) = run(model, first), run(model, second)
    assert np.isfinite(a).all()
    assert a.std() > 0.5 * abs(a.mean())
    assert 1e-2 < np.abs(a).max() < 1e3
    assert np.unique(a).size > 0.8 * a.size
    assert np.abs(a - b).max() > 0.05 * np.abs(a).max()


@pytest.mark.parametrize("name", QUICK)
def test_weights_are_initializers_and_the_data_the_only_input(name: str) -> None:
    model = zoo.load(name)
    onnx.checker.check_model(model)
    assert data_shape(model)[:2] == [1, 3]
    assert all(node.op_type != "ConstantOfShape" for node in model.graph.node)
    floats = [i for i in model.graph.initializer if i.data_type == onnx.TensorProto.FLOAT]
    assert all(np.isfinite(numpy_helper.to_array(i)).all() for i in floats)


def test_loading_twice_gives_the_same_model() -> None:
    assert zoo.load("squeezenet").SerializeToString() == zoo.load("squeezenet").SerializeToString()


def test_strip_softmax_returns_what_softmax_is_given() -> None:
    model = zoo.load("squeezenet")
    logits = zoo.strip_softmax(model)
    x = np.random.default_rng(0).standard_normal(data_shape(model), np.float32)
    (a,), (b,) = run(logits, x), run(model, x)
    powers = np.exp(a - a.max())
    np.testing.assert_allclose(powers / powers.sum(), b, rtol=1e-4)
    assert model.graph.node[-1].op_type == "Softmax"


def test_inner_outputs_come_after_the_model_s_own() -> None:
    model = zoo.load("squeezenet")
    inner = model.graph.node[0].output[0]
    extended = zoo.with_inner_outputs(model, [inner])
    assert [value.name for value in extended.graph.output] == [model.graph.output[0].name, inner]
    x = np.random.default_rng(0).standard_normal(data_shape(model), np.float32)
    assert run(extended, x)[1].ndim == 4
    assert len(zoo.with_inner_outputs(model).graph.output) > len(model.graph.node)
    with pytest.raises(ModelError, match="zoo: tensor 'nothing': expected a tensor that a node makes"):
        zoo.with_inner_outputs(model, ["nothing"])


def test_fill_draws_what_the_spec_says() -> None:
    he = fill((200, 50, 3, 3), "he:7")
    assert he.dtype == np.float32
    assert he.std() == pytest.approx((2 / 450) ** 0.5, rel=0.01)
    assert fill((1000,), "normal:0.1:7").std() == pytest.approx(0.1, rel=0.1)
    uniform = fill((1000,), "uniform:0.5:1.5:7")
    assert 0.5 <= uniform.min() < 0.52
    assert 1.48 < uniform.max() <= 1.5


@pytest.mark.parametrize("spec", ["zeros:1", "normal:1", "he:1:2"])
def test_unknown_spec_is_refused(spec: str) -> None:
    with pytest.raises(ModelError, match=f"zoo: weight spec '{spec}': expected he:SEED"):
        fill((2, 2), spec)


def test_a_softmax_that_another_node_reads_stays() -> None:
    x, y, z = (onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [1, 3]) for n in "xyz")
    nodes = [onnx.helper.make_node("Softmax", ["x"], ["y"]), onnx.helper.make_node("Abs", ["y"], ["z"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "shared", [x], [y, z]))
    stripped = zoo.strip_softmax(model)
    onnx.checker.check_model(stripped)
    assert [value.name for value in stripped.graph.output] == ["x", "z"]
    assert len(stripped.graph.node) == 2
