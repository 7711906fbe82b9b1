"""The least work of a network, counted by hand; and its batch, changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from command import tiny_model
from convoy import zoo
from convoy.bench.accuracy import reference_outputs
from convoy.bench.batch import set_batch
from convoy.bench.bounds import Work, count_work
from convoy.bench.inputs import seeded_inputs
from convoy.bench.machine import Machine


def conv(channels: int, size: int, kernel: int = 3, **attributes: Any) -> Work:
    """The work of one convolution, ``channels`` → 32, on size x size."""
    groups = attributes.get("group", 1)
    weight = np.zeros((32, channels // groups, kernel, kernel), np.float32)
    dilation = attributes.get("dilations", [1])[0]
    pads = [kernel // 2 * dilation] * 4
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=pads, **attributes)],
        "conv",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, channels, size, size))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    out = (size - 1) // attributes.get("strides", [1])[0] + 1
    work = count_work(model, seeded_inputs(model), [(1, 32, out, out)])
    assert work is not None
    assert work.direct == 2 * 32 * out * out * weight[0].size
    assert work.traffic == 4 * (weight.size + channels * size * size + 32 * out * out)
    return work


def test_a_3x3_takes_36_products_for_16_outputs() -> None:
    assert conv(64, 8).winograd == 2 * 32 * 64 * 36 * 4


def test_a_last_tile_takes_what_is_left() -> None:
    # 2x2 outputs need the 16 products of F(2,3), a whole tile of F(4,3) 36, direct also 36
    assert conv(64, 2).winograd == 2 * 32 * 64 * 16
    # three tiles of 4 outputs a side, and one of 2
    assert conv(64, 14).winograd == 2 * 32 * 64 * (3 * 6 + 4) ** 2


def test_a_dilated_3x3_has_the_tiles_of_each_of_its_phases() -> None:
    # every third of 8 rows is 3, 3 and 2 outputs: one tile each
    assert conv(64, 8, dilations=[3, 3]).winograd == 2 * 32 * 64 * (5 + 5 + 4) ** 2


@pytest.mark.parametrize(
    ("channels", "attributes"),
    [(8, {}), (64, {"strides": [2, 2]}), (64, {"kernel": 1}), (64, {"group": 32}), (64, {"kernel": 5})],
)
def test_winograd_does_not_help_others(channels: int, attributes: dict[str, Any]) -> None:
    work = conv(channels, 8, **attributes)
    assert work.winograd == work.direct


def count(node: onnx.NodeProto, x: tuple[int, ...], *weights: tuple[int, ...]) -> Work | None:
    arrays = [
        numpy_helper.from_array(np.zeros(s, np.float32), n) for s, n in zip(weights, "wr", strict=False)
    ]
    x_info = helper.make_tensor_value_info("x", TensorProto.FLOAT, x)
    y_info = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", [x_info], [y_info], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return count_work(model, seeded_inputs(model), [])


def test_a_volume_has_the_tiles_of_its_slices() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 6)
    work = count(node, (1, 16, 5, 8, 8), (32, 16, 3, 3, 3))
    assert work is not None
    assert work.direct == 2 * 32 * 5 * 64 * 16 * 27
    assert work.winograd == 2 * 32 * 5 * 16 * 3 * 36 * 4


@pytest.mark.parametrize(("op", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_a_recurrent_layer_multiplies_inputs_and_states_at_each_step(op: str, gates: int) -> None:
    node = helper.make_node(op, ["x", "w", "r"], ["y"], hidden_size=5, direction="bidirectional")
    work = count(node, (7, 3, 4), (2, gates * 5, 4), (2, gates * 5, 5))
    assert work is not None
    assert work.direct == work.winograd == 2 * 7 * 3 * 2 * gates * 5 * (4 + 5)


def test_a_matrix_product_counts_and_the_batch_multiplies() -> None:
    works = []
    for batch in (1, 8):
        model = tiny_model(batch="n")
        set_batch(model, batch)
        works.append(count_work(model, seeded_inputs(model), [(batch, 5)]))
    one, eight = works
    assert one is not None
    assert eight is not None
    assert one.direct == 2 * (16 * 8 * 8 * 27 + 16 * 5)
    assert eight.direct == 8 * one.direct


def test_resnet50_is_the_size_it_is_known_for() -> None:
    model = zoo.load("resnet50")
    work = count_work(model, seeded_inputs(model), [(1, 1000)])
    assert work is not None
    assert 7.5e9 < work.direct < 8.5e9
    assert 0.6 < work.winograd / work.direct < 0.9
    assert 100e6 < work.traffic < 105e6


def test_a_model_exported_for_one_image_runs_several_each_on_its_own() -> None:
    one, three = (zoo.strip_softmax(zoo.load("shufflenet")) for _ in range(2))
    set_batch(three, 3)
    inputs = seeded_inputs(three)
    (name,) = inputs
    (together,) = reference_outputs(three, inputs)
    (alone,) = reference_outputs(one, {name: inputs[name][1:2]})
    assert together.shape == (3, *alone.shape[1:])
    np.testing.assert_allclose(together[1:2], alone, rtol=1e-4, atol=1e-4 * np.abs(alone).max())


@pytest.mark.slow
def test_the_machine_has_a_speed() -> None:
    rates = Machine(1).measure()
    assert 1e8 < rates.flops < 1e13
    assert 1e8 < rates.bandwidth < 1e13


def test_an_unknown_shape_gives_no_bound_rather_than_a_wrong_one() -> None:
    model = tiny_model(extra="Mystery")
    del model.graph.node[:-1]
    model.graph.node.append(helper.make_node("MatMul", ["unseen", "w1"], ["z"]))
    assert isinstance(model, onnx.ModelProto)
    assert count_work(model, seeded_inputs(model), [(1, 5)]) is None
