"""Norms of ONNX, in the op and in the ops that exporters write, are one node of a region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from convoy.graph import reference
from convoy.graph.ops import Node
from convoy.graph.rewrite import simplify
from convoy.relax.graphs import lower_model

Nodes = list[onnx.NodeProto]
ROWS, IMAGE = (1, 200, 48), (1, 12, 30, 29)
"""Large enough to be worth a region."""


def chain(*steps: tuple[Any, ...]) -> Nodes:
    """Nodes ``(op, inputs, output, attributes)``."""
    return [helper.make_node(op, inputs.split(), [output], **(given[0] if given else {}))
            for op, inputs, output, *given in steps]  # fmt: skip


WRITTEN_OUT = (
    ("ReduceMean", "x", "mean", {"axes": [-1]}),
    ("Sub", "x mean", "centred"),
    ("Pow", "centred two", "square"),
    ("ReduceMean", "square", "variance", {"axes": [-1]}),
    ("Add", "variance epsilon", "above"),
    ("Sqrt", "above", "deviation"),
)
DIVIDED = ("Div", "centred deviation", "normal")
SCALED = (("Mul", "normal gamma", "scaled"), ("Add", "scaled beta", "y"))

CASES: dict[str, tuple[tuple[int, ...], Nodes, str]] = {
    "LayerNormalization": (
        ROWS,
        chain(("LayerNormalization", "x gamma beta", "y", {"axis": -1})),
        "LayerNorm",
    ),
    "a layer norm as PyTorch wrote it": (ROWS, chain(*WRITTEN_OUT, DIVIDED, *SCALED), "LayerNorm"),
    "a layer norm as Keras writes it": (
        ROWS,
        chain(
            *WRITTEN_OUT,
            ("Reciprocal", "deviation", "inverse"),
            ("Mul", "inverse gamma", "s"),
            ("Mul", "x s", "scaled"),
            ("Mul", "mean s", "moved"),
            ("Sub", "beta moved", "shift"),
            ("Add", "scaled shift", "y"),
        ),
        "LayerNorm",
    ),
    "InstanceNormalization": (
        IMAGE,
        chain(("InstanceNormalization", "x channels other", "y")),
        "GroupNorm",
    ),
    "a group norm as PyTorch writes it": (
        IMAGE,
        chain(
            ("Reshape", "x groups", "split"),
            ("InstanceNormalization", "split one zero", "norm"),
            ("Reshape", "norm image", "normal"),
            ("Mul", "normal wide", "scaled"),
            ("Add", "scaled wide2", "y"),
        ),
        "GroupNorm",
    ),
}
CONSTANTS = {
    "two": np.float32(2), "epsilon": np.float32(1e-5), "one": np.ones(4), "zero": np.zeros(4),
    "gamma": np.linspace(0.5, 1, 48), "beta": np.linspace(-1, 1, 48), "channels": np.linspace(0.5, 1, 12),
    "other": np.linspace(-1, 1, 12), "wide": np.linspace(0.5, 1, 12).reshape(12, 1, 1),
    "wide2": np.linspace(-1, 1, 12).reshape(12, 1, 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_norm_is_one_node(
    name: str, make_model: Callable[..., onnx.ModelProto], run_onnx: Callable[..., list[np.ndarray]]
) -> None:
    shape, nodes, expected = CASES[name]
    read = {i for node in nodes for i in node.input}
    constants = {key: np.asarray(value, np.float32) for key, value in CONSTANTS.items() if key in read}
    constants |= {"groups": np.array([0, 4, -1])} if "groups" in read else {}
    constants |= {"image": np.array(shape)} if "image" in read else {}
    model = make_model(nodes, {"x": shape}, constants)
    (graph,) = lower_model(model)
    simple = simplify(graph)
    assert kinds(simple.nodes) == [expected]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(reference.run(simple, [x])[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


def kinds(nodes: tuple[Node, ...]) -> list[str]:
    return [type(node).__name__ for node in nodes]


def test_a_weight_that_is_normalised_as_it_is_loaded_is_a_constant(
    make_model: Callable[..., onnx.ModelProto], run_onnx: Callable[..., list[np.ndarray]]
) -> None:
    # Its shape is open until it is computed: PyTorch writes scaled weight standardisation so (NFNet).
    norm = ["flat", "scale", "shift", "mean", "variance"]
    nodes = [
        *chain(("Identity", "shape", "copied")),
        helper.make_node("BatchNormalization", norm, ["normal", "m", "v"], training_mode=1),
        *chain(("Reshape", "normal copied", "weight")),
        *chain(("Conv", "x weight", "y", {"kernel_shape": [3, 3], "pads": [1] * 4})),
    ]
    rng = np.random.default_rng(0)
    constants = {
        "flat": rng.standard_normal((1, 8, 36)).astype(np.float32),
        "shape": np.array([8, 4, 3, 3]),
        **{
            name: rng.uniform(0.5, 1.5, 8).astype(np.float32)
            for name in ("scale", "shift", "mean", "variance")
        },
    }
    model = make_model(nodes, {"x": (1, 4, 20, 20)}, constants)
    (graph,) = lower_model(model)
    assert kinds(graph.nodes) == ["Conv2d"]
    x = rng.standard_normal((1, 4, 20, 20)).astype(np.float32)
    np.testing.assert_allclose(reference.run(graph, [x])[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)
