"""Constants in the place of random numbers, so that two engines' answers can be compared."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from convoy.bench.accuracy import reference_outputs
from convoy.bench.draws import FORMS, hold_draws
from convoy.relax.importer.evaluate import RANDOM


def make(text: str, opset: int = 22) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": {opset}]> {text}')


def test_every_op_that_draws_has_a_form() -> None:
    assert FORMS.keys() == RANDOM


def test_a_model_that_draws_nothing_is_left_alone() -> None:
    model = make("network (float[2] x) => (float[2] y) { y = Relu (x) }")
    held, names = hold_draws(model)
    assert held is model
    assert not names


@pytest.mark.parametrize(
    ("drawing", "want"),
    [
        ("y = RandomNormalLike <mean = 2.0, scale = 0.5> (x)", np.full((2, 3), 2.5, np.float32)),
        ("y = RandomUniformLike <low = -1.0, high = 3.0, dtype = 11> (x)", np.full((2, 3), 2.0)),
        ("y = RandomUniform <shape = [4]> ()", np.full(4, 0.75, np.float32)),
        ("y = RandomNormal <shape = [1, 2], seed = 1.0> ()", np.ones((1, 2), np.float32)),
        ("y = Bernoulli (x)", np.array([[0, 0, 1], [0, 1, 1]], np.float32)),
        ("y = Bernoulli <dtype = 9> (x)", np.array([[0, 0, 1], [0, 1, 1]], bool)),
        ("y = Multinomial <sample_size = 2> (x)", np.array([[2, 2], [1, 1]], np.int32)),
    ],
)
def test_what_stands_in_its_place(drawing: str, want: np.ndarray) -> None:
    model = make(f"network (float[N,3] x) => (y) {{ {drawing} }}")
    x = np.array([[0.1, 0.5, 0.6], [0.2, 0.9, 0.7]], np.float32)
    held, names = hold_draws(model)
    assert names == ["y"]
    (found,) = reference_outputs(held, {"x": x})
    assert found.dtype == want.dtype
    np.testing.assert_array_equal(found, want)


def test_inner_graphs_are_held_too() -> None:
    model = make(
        """network (float[2] x, bool c) => (y) {
            y = If (c) <
                then_branch = g1 () => (float[2] a) { a = RandomNormalLike (x) },
                else_branch = g2 () => (float[2] b) { b = Identity (x) }
            >
        }"""
    )
    held, names = hold_draws(model)
    assert names == ["a"]
    (found,) = reference_outputs(held, {"x": np.zeros(2, np.float32), "c": np.array(True)})
    np.testing.assert_array_equal(found, [1, 1])


def test_names_that_are_taken_stay_another_tensors() -> None:
    text = "n_shape = Relu (x) n = RandomNormalLike (n_shape) y = Add (n, n_shape)"
    held, _ = hold_draws(make(f"network (float[2] x) => (y) {{ {text} }}"))
    (found,) = reference_outputs(held, {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(found, [2, 3])


def test_the_models_own_functions_are_held_too() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["": 22, "own": 1]>
        network (float[2] x) => (float[2] y) { y = own.Noise (x) }
        <domain: "own", opset_import: ["": 22]>
        Noise (a) => (b) { n = RandomNormalLike (a) b = Add (a, n) }"""
    )
    held, names = hold_draws(model)
    assert len(names) == 1
    (found,) = reference_outputs(held, {"x": np.array([1, 2], np.float32)})
    np.testing.assert_array_equal(found, [2, 3])


@pytest.mark.parametrize(
    "faulty",
    [
        onnx.helper.make_node("RandomNormalLike", ["x"], []),
        onnx.helper.make_node("RandomNormal", [], ["y"]),
        onnx.helper.make_node("RandomNormalLike", [], ["y"]),
        onnx.helper.make_node("RandomNormalLike", ["x"], ["y"], mean=[1.0, 2.0]),
        onnx.helper.make_node("RandomNormalLike", ["x"], ["y"], dtype=99),
        onnx.helper.make_node("RandomNormalLike", ["x"], ["y"], dtype=onnx.TensorProto.STRING),
    ],
)
def test_a_faulty_node_is_left_to_who_says_what_is_wrong(faulty: onnx.NodeProto) -> None:
    model = make("network (float[2] x) => (float[2] y) { y = Relu (x) }")
    model.graph.node.append(faulty)
    held, names = hold_draws(model)
    assert not names
    assert held.graph.node[-1] == faulty
