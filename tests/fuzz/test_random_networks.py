"""The random networks themselves: valid, replayable, of every kind; their twins compute the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from fuzz.campaign.compare import find_difference
from fuzz.campaign.oracle import (
    NETWORKS,
    are_ties,
    prepare,
    quantise_network,
    run_in_double,
    run_plainly,
)
from fuzz.campaign.shrink import smaller_models
from fuzz.networks.bundle import closed, draw_inputs, form_of, is_quantised, join, split
from fuzz.networks.draft import Form
from fuzz.networks.make import FEWEST, draw_form, make_network
from fuzz.networks.ties import slack

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


@pytest.mark.slow
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
    assert {form.sides for form in forms} == {True, False}
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
    found = [n for bundle in (0, 1) for n in prepare((3, bundle, str(tmp_path), ()))]
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


def test_open_sides_are_run_with_what_was_drawn() -> None:
    models = {i: make_network([4, i], Form(batch=2, sides=True)) for i in range(3)}
    fixed = [make_network([4, i], FORM) for i in models]
    inputs = [array for model in models.values() for array in draw_inputs(model)]
    assert [a.shape for a in inputs] == [a.shape for model in fixed for a in draw_inputs(model)]
    together = join(models)
    assert form_of(together) == form_of(models[0]) == Form(batch=2, sides=True)
    dims = [dim for value in together.graph.input for dim in value.type.tensor_type.shape.dim]
    assert len({dim.dim_param for dim in dims if dim.dim_param}) > 1
    assert [a.shape for a in draw_inputs(together)] == [a.shape for a in inputs]
    assert form_of(closed(together)) == FORM
    assert any(form_of(smaller) == FORM for smaller in smaller_models(models[0]))


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
    assert ops >= {"QuantizeLinear", "DequantizeLinear", "QLinearConv", "MatMulInteger"}
    kinds = {tensor.data_type for model in models for tensor in model.graph.initializer}
    assert kinds >= {onnx.TensorProto.UINT8, onnx.TensorProto.INT8, onnx.TensorProto.INT32}
    assert quantised(3) == quantised(3)


@pytest.mark.slow
def test_some_networks_have_forms_that_no_quantiser_writes() -> None:
    # bytes as outputs, zero points left out or each its own, scales along other axes
    models = [quantised(number) for number in range(60)]
    outputs = {value.type.tensor_type.elem_type for model in models for value in model.graph.output}
    assert outputs == {onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8, onnx.TensorProto.INT8}
    nodes = [node for model in models for node in model.graph.node]
    assert any(node.op_type == "QuantizeLinear" and len(node.input) == 2 for node in nodes)
    axes = {a.i for n in nodes if n.op_type == "DequantizeLinear" for a in n.attribute if a.name == "axis"}
    assert axes >= {0, 1, 2}
    zeros = [onnx.numpy_helper.to_array(t) for model in models for t in model.graph.initializer]
    assert any(z.dtype in (np.int8, np.uint8) and z.ndim == 1 and np.ptp(z) for z in zeros)


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
    # quotients 0.5, 1.5, 0.8, 2.0, then twice the bytes
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[4] x) => (float[4] y)'
        "<float s = {0.5}, uint8 z = {10}, float two = {2}> "
        "{ q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = Mul(d, two) }"
    )
    model = onnx.parser.parse_model(text)
    onnx.helper.set_model_props(model, {"batch": "1", "quantised": "1"})
    inputs = [np.array([0.25, 0.75, 0.4, 1.0], np.float32)]
    want = run_plainly(model, inputs)
    np.testing.assert_array_equal(want, [np.float32([0, 2, 1, 2])])

    def forgiven(*got: float) -> bool:
        return are_ties(model, inputs, [np.array(got, np.float32)], want)

    assert forgiven(0, 2, 1, 2)
    assert forgiven(1, 1, 1, 2), "both ties the other way"
    assert not forgiven(2, 2, 1, 2), "two units at a tie"
    assert not forgiven(0, 2, 2, 2), "a unit where no tie is"
    assert not forgiven(0, 2, 1.01, 2), "less than a unit"


@pytest.mark.parametrize("number", range(8))
def test_ties_of_a_network_explain_little(number: int) -> None:
    model = quantised(number)
    inputs = draw_inputs(model)
    want = run_plainly(model, inputs)
    for most, b in zip(slack(model, inputs, want, run_plainly), want, strict=True):
        assert np.median(most) <= 2e-3 * np.abs(b).max()
