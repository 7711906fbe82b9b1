"""Elements written where indices say, of fewer rows and columns than the data have; rows; and nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tvm import relax, tirx

import convoy
from convoy.deploy.runner import Runner
from convoy.relax.scatter import scatter_by_coordinates
from relax import sketch
from relax.loops import find_loops_that_wake_threads
from relax.onnx_models import run_onnx

DATA = (3, 4, 5)


def scatter(
    nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]], constants: dict[str, np.ndarray]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "scatter",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None) for node in nodes],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def indices_of(shape: tuple[int, ...], axis: int) -> np.ndarray:
    """Such as write no element twice, counted from the end."""
    along = [1] * len(shape)
    along[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).reshape(along) - shape[axis], shape).copy()


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fixed", "open", "constant"])
@pytest.mark.parametrize("shape", [(2, 2, 3), (3, 1, 5), DATA])
def test_elements_go_where_indices_of_fewer_rows_say(form: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    arrays = {name: random.standard_normal(s).astype(np.float32) for name, s in (("x", DATA), ("u", shape))}
    places = {f"i{axis}": indices_of(shape, axis) for axis in range(3)}
    nodes = [
        helper.make_node(
            "ScatterElements", ["x", f"i{axis}", "u"], [f"y{axis}{how}"], axis=axis, reduction=how
        )
        for axis in range(3)
        for how in ("none", "add", "mul", "max", "min")
    ]
    given = arrays if form == "constant" else {**arrays, **places}
    inputs = {
        name: (
            TensorProto.INT64 if name in places else TensorProto.FLOAT,
            [f"{name}{i}" for i in range(3)] if form == "open" else list(array.shape),
        )
        for name, array in given.items()
    }
    model = scatter(nodes, inputs, places if form == "constant" else {})
    found = Runner(convoy.compile(model, "portable")).run([*given.values()])
    for node, ours, wanted in zip(nodes, found, run_onnx(model, *given.values()), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, err_msg=node.output[0])


@pytest.mark.parametrize("how", ["max", "min"])
def test_extremes_are_scattered_before_opset_18_too(how: str) -> None:
    # as PyTorch writes them into files of opset 16; ONNX Runtime computes them
    nodes = [
        helper.make_node("ScatterElements", ["x", "i", "u"], ["elements"], reduction=how),
        helper.make_node("ScatterND", ["x", "rows", "u"], ["y"], reduction=how),
    ]
    random = np.random.default_rng(0)
    x, u = (random.standard_normal(s).astype(np.float32) for s in ((5, 4), (3, 4)))
    inputs = {"x": (TensorProto.FLOAT, [5, 4]), "u": (TensorProto.FLOAT, [3, 4])}
    places = {"i": random.integers(0, 5, (3, 4)), "rows": random.integers(0, 5, (3, 1))}
    model = scatter(nodes, inputs, places)
    model.opset_import[0].version = 16
    found = Runner(convoy.compile(model, "portable")).run([x, u])
    for ours, wanted in zip(found, run_onnx(model, x, u), strict=True):
        np.testing.assert_array_equal(ours, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fixed", "open"])
def test_rows_go_where_indices_say(form: str) -> None:
    # short rows and long ones, which threads share; elements; several for one place; tables of indices
    random = np.random.default_rng(0)
    cases = {
        "short": ((9, 4, 3), (7, 1)), "long": ((5, 40, 1100), (3, 1)), "elements": ((4, 5), (2, 3, 2)),
        "whole": ((4, 5), (1,)), "batches": ((3, 4, 6), (2, 2, 2)),
    }  # fmt: skip
    nodes, given = [], {}
    for case, (data, places) in cases.items():
        named = data[: places[-1]]
        given[f"{case}_x"] = random.standard_normal(data).astype(np.float32)
        given[f"{case}_i"] = random.integers([-n for n in named], named, places)
        updates = (*places[:-1], *data[places[-1] :])
        given[f"{case}_u"] = random.standard_normal(updates).astype(np.float32)
        nodes += [
            helper.make_node("ScatterND", [f"{case}_{n}" for n in "xiu"], [f"{case}_{how}"], reduction=how)
            for how in ("none", "add", "mul", "max", "min")
        ]
    inputs = {
        name: (
            TensorProto.INT64 if name.endswith("i") else TensorProto.FLOAT,
            [f"{name}{i}" if form == "open" and not _names(name, array, i) else n
             for i, n in enumerate(array.shape)],
        )
        for name, array in given.items()
    }  # fmt: skip
    model = scatter(nodes, inputs, {})
    found = Runner(convoy.compile(model, "portable")).run([*given.values()])
    for node, ours, wanted in zip(nodes, found, run_onnx(model, *given.values()), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6, err_msg=node.output[0])


def _names(name: str, array: np.ndarray, axis: int) -> bool:
    """Is it the axis of indices that says how many axes they name?"""
    return name.endswith("i") and axis == array.ndim - 1


@pytest.mark.parametrize("row", [16, 4096])
def test_threads_are_not_woken_for_each_row(row: int) -> None:
    # TVM's own loops did: 3,072 rows of 16 took 60 times as long
    n = tirx.Var("n", "int64")
    module = sketch.module(
        lambda bind, x, i, u: bind(relax.op.scatter_nd(x, i, u, "add")),
        (400, row),
        relax.TensorType((n, 1), "int64"),
        (n, row),
    )
    written = relax.transform.LegalizeOps()(scatter_by_coordinates()(module))
    (loops,) = (f for _, f in written.functions_items() if isinstance(f, tirx.PrimFunc))
    assert not find_loops_that_wake_threads(loops)
    assert ("T.parallel" in loops.script()) == (row > 1024)


def test_no_element_changes_nothing() -> None:
    # indices that are no rows, a constant: TVM divided by how many there are as it compiled
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"])
    inputs = {"x": (TensorProto.FLOAT, [*DATA]), "u": (TensorProto.FLOAT, [0, 4, 5])}
    model = scatter([node], inputs, {"i": np.zeros((0, 4, 5), np.int64)})
    x, u = np.ones(DATA, np.float32), np.zeros((0, 4, 5), np.float32)
    np.testing.assert_array_equal(Runner(convoy.compile(model, "portable")).run([x, u])[0], x)


def test_constants_are_scattered_as_a_call_would() -> None:
    constants = {
        "x": np.zeros((3, 4), np.float32),
        "i": np.array([[2], [0]]),
        "u": np.array([[1], [2]], np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("ScatterElements", ["x", "i", "u"], ["s"]),
            helper.make_node("Add", ["s", "z"], ["y"]),
        ],
        "scatter",
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    z = np.zeros((3, 4), np.float32)
    np.testing.assert_array_equal(
        Runner(convoy.compile(model, "portable")).run([z])[0], run_onnx(model, z)[0]
    )
