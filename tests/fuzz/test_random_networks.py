"""The random networks themselves: valid, replayable, of every kind; their twins compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from fuzz.campaign.compare import find_difference
from fuzz.campaign.oracle import NETWORKS, prepare, quantise_network, run_in_double, run_plainly
from fuzz.campaign.shrink import smaller_models
from fuzz.networks.bundle import draw_inputs, form_of, is_quantised, join, split
from fuzz.networks.make import FEWEST, Form, draw_form, make_network

FORM = Form(batch=2)


def draw(count: int) -> list[onnx.ModelProto]:
    return [make_network([0, i], draw_form(np.random.default_rng([1, i]))) for i in range(count)]


def test_a_seed_names_one_network() -> None:
    texts = [make_network([0, i], FORM).SerializeToString() for i in (7, 7, 8)]
    assert texts[0] == texts[1] != texts[2]


def test_networks_are_valid_and_connected() -> None:
    for model in draw(80):
        onnx.checker.check_model(model)
        assert sum(node.op_type != "Constant" for node in model.graph.node) >= FEWEST
        assert parts_of(model) == 1


def parts_of(model: onnx.ModelProto) -> int:
    """Connected parts, seen through the tensors that nodes make and inputs give; constants join nothing."""
    given = {value.name for value in model.graph.input}
    given |= {n for node in model.graph.node if any(node.input) for n in node.output}
    parts: list[set[str]] = []
    for node in model.graph.node:
        names = given.intersection([*node.input, *node.output])
        touching = [part for part in parts if part & names]
        parts = [part for part in parts if not part & names] + ([names.union(*touching)] if names else [])
    return len(parts)


def test_every_kind_is_drawn() -> None:
    models = draw(600)
    ops = {node.op_type for model in models for node in model.graph.node}
    assert ops >= {
        "Conv", "ConvTranspose", "BatchNormalization", "Concat", "Split", "Slice", "Resize", "MaxPool",
        "AveragePool", "Transpose", "Reshape", "Flatten", "Gemm", "MatMul", "Softmax", "LayerNormalization",
        "InstanceNormalization", "LRN", "Pad", "PRelu", "Clip", "Where", "Gather", "Tile", "Constant",
        "LSTM", "GRU", "RNN",
    }  # fmt: skip
    forms = [form_of(model) for model in models]
    assert {form.batch for form in forms} == {0, 1, 2, 3, 4, 5}
    assert {form.symbolic for form in forms} == {True, False}
    outputs = [{value.name for value in model.graph.output} for model in models]
    inputs = [{value.name for value in model.graph.input} for model in models]
    constants = [{tensor.name for tensor in model.graph.initializer} for model in models]
    assert any(a & b for a, b in zip(outputs, inputs, strict=True)), "an input that is an output"
    assert any(a & b for a, b in zip(outputs, constants, strict=True)), "a constant output"
    assert any(len(names) > 2 for names in outputs)
    assert any(len(names) > 1 for names in inputs)


def test_oracle_runs_them_and_twins_agree(tmp_path: Path) -> None:
    found = [n for bundle in (0, 1) for n in prepare((3, bundle, str(tmp_path), False))]
    assert sum(n["of"] is None for n in found) == 2 * NETWORKS
    refused = [n for n in found if n["refused"]]
    assert len(refused) < len(found) / 10, refused
    assert not [n for n in refused if "differs" in n["refused"]]
    assert sum(n["of"] is not None for n in found) >= 4


def test_joined_networks_compute_what_each_does() -> None:
    models = {i: make_network([4, i], FORM) for i in range(6)}
    inputs = {i: draw_inputs(model) for i, model in models.items()}
    together = run_plainly(join(models), [array for arrays in inputs.values() for array in arrays])
    for i, got in split(together, models).items():
        assert find_difference(got, run_plainly(models[i], inputs[i])) is None


def test_double_is_near_onnx_runtime() -> None:
    model = make_network([4, 0], FORM)
    inputs = draw_inputs(model)
    exact = [array.astype(np.float32) for array in run_in_double(model, inputs)]
    assert find_difference(run_plainly(model, inputs), exact) is None


def test_smaller_models_are_smaller_or_plainer() -> None:
    model = make_network([4, 1], Form(batch=3, symbolic=True))
    size = len(model.graph.node)
    smaller = list(smaller_models(model))
    assert len(smaller) > size
    assert all(len(m.graph.node) <= size for m in smaller)
    assert any(not form_of(m).symbolic for m in smaller)


@pytest.mark.parametrize(
    ("got", "same"),
    [
        ([1.0, 2.0], True),
        ([1.0, 2.0001], True),
        ([1.0, 2.001], False),
        ([1.0, np.nan], False),
        ([1.0], False),
    ],
)
def test_difference_is_the_promise(got: list[float], same: bool) -> None:
    found = find_difference([np.array(got, np.float32)], [np.array([1, 2], np.float32)])
    assert (found is None) == same


def quantised(number: int) -> onnx.ModelProto:
    model = make_network([6, number], FORM)
    return quantise_network(model, np.random.default_rng([6, number, 1]))


def test_networks_are_quantised_in_all_forms() -> None:
    models = [quantised(number) for number in range(40)]
    for model in models:
        onnx.checker.check_model(model)
    assert all(is_quantised(model) for model in models)
    ops = {node.op_type for model in models for node in model.graph.node}
    assert ops >= {"QuantizeLinear", "DequantizeLinear", "QLinearConv"}
    kinds = {tensor.data_type for model in models for tensor in model.graph.initializer}
    assert kinds >= {onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32}
    assert quantised(3) == quantised(3)


def test_quantised_networks_compute_nearly_what_they_did() -> None:
    near = 0
    for number in range(12):
        plain = make_network([6, number], FORM)
        inputs = draw_inputs(plain)
        whole, bytes_of = (run_plainly(model, inputs) for model in (plain, quantised(number)))
        near += all(
            np.abs(a - b).mean() <= 0.1 * max(np.abs(a).max(), 1e-6)
            for a, b in zip(whole, bytes_of, strict=True)
        )
    assert near >= 9


def test_units_at_ties_are_no_difference_in_a_quantised_network() -> None:
    want = np.linspace(-1, 1, 200, dtype=np.float32)
    tie, wrong = want.copy(), want * np.float32(1.01)
    tie[:5] += 0.01
    assert find_difference([tie], [want], quantised=True) is None
    assert find_difference([tie], [want]) is not None
    assert find_difference([wrong], [want], quantised=True) is not None
    tie[0] += 0.1
    assert find_difference([tie], [want], quantised=True) is not None
