"""Open sizes that are 0, or too small: what ONNX Runtime answers, or one line; never memory of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import convoy
from convoy.errors import ModelError

FLOAT = onnx.TensorProto.FLOAT
FAR = 2**62

Node = tuple[str, list[str], list[str], dict[str, Any]]


def build(shape: list[Any], nodes: list[Node], constants: dict[str, Any]) -> onnx.ModelProto:
    graph = helper.make_graph(
        [helper.make_node(op, inputs, outputs, **given) for op, inputs, outputs, given in nodes],
        "network",
        [helper.make_tensor_value_info("x", FLOAT, shape)],
        [helper.make_tensor_value_info("y", FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def cut(start: int, end: int, step: int = 1, axis: int = 0) -> tuple[list[Any], list[Node], dict[str, Any]]:
    bounds = {"s": [start], "e": [end], "a": [axis], "p": [step]}
    return ["n", 4], [("Slice", ["x", *bounds], ["y"], {})], bounds


def one(op: str, shape: list[Any], **given: Any) -> tuple[list[Any], list[Node], dict[str, Any]]:
    return shape, [(op, ["x"], ["y"], given)], {}


ROWS, MAP = ["n", 4], [1, 2, "n", 6]
GRID = np.linspace(-1, 1, 32, dtype="float32").reshape(1, 4, 4, 2)
SIZE: list[Node] = [("Shape", ["x"], ["s"], {}), ("Gather", ["s", "zero"], ["n"], {})]
CASES: dict[str, tuple[tuple[list[Any], list[Node], dict[str, Any]], list[int], list[int]]] = {
    # a network, the sizes at which it has an answer, and those that end a call
    "the first row": (cut(0, 1), [1, 2, 5], [0]),
    "the last row": (cut(-1, FAR), [1, 2, 5], [0]),
    "rows from the second": (cut(1, FAR), [1, 2, 5], [0]),
    "rows 1 and 2": (cut(1, 3), [1, 2, 5], [0]),
    "rows up to the third": (cut(0, 3), [0, 1, 5], []),
    "every other row": (cut(0, FAR, 2), [0, 1, 5], []),
    "columns behind the last": (cut(7, -2, 2, axis=1), [1, 5], []),
    "columns that end before they start": (cut(3, 1, axis=1), [1, 5], []),
    "backwards": (cut(-1, -FAR, -1), [0, 1, 5], []),
    "backwards to where it began": (cut(1, 2, -1, axis=1), [1, 5], []),
    "the largest three": (
        (ROWS, [("TopK", ["x", "k"], ["y", "i"], {"axis": 0})], {"k": [3]}),
        [3, 5],
        [0, 1, 2],
    ),
    "a sum": ((ROWS, [("ReduceSum", ["x", "a"], ["y"], {})], {"a": [0]}), [0, 1, 5], []),
    "the place of the largest": (
        (ROWS, [("ArgMax", ["x"], ["i"], {}), ("Cast", ["i"], ["y"], {"to": FLOAT})], {}),
        [1, 5],
        [0],
    ),
    "a window of bytes": (
        (
            MAP,
            [
                ("Cast", ["x"], ["q"], {"to": onnx.TensorProto.INT8}),
                ("MaxPool", ["q"], ["p"], {"kernel_shape": [4, 4]}),
                ("Cast", ["p"], ["y"], {"to": FLOAT}),
            ],
            {},
        ),
        [4, 5],
        [1, 2],
    ),
    "a convolution without a pad": (
        (MAP, [("Conv", ["x", "w"], ["y"], {})], {"w": np.ones((3, 2, 3, 3), "float32")}),
        [3, 5],
        [0, 1, 2],
    ),
    "pixels of a grid": ((MAP, [("GridSample", ["x", "g"], ["y"], {})], {"g": GRID}), [1, 5], [0]),
    "resized to a size": (
        (MAP, [("Resize", ["x", "", "", "to"], ["y"], {"mode": "nearest"})], {"to": [1, 2, 8, 6]}),
        [1, 5],
        [0],
    ),
    "padded by its edge": (
        (ROWS, [("Pad", ["x", "p"], ["y"], {"mode": "edge"})], {"p": [1, 0, 1, 0]}),
        [1, 5],
        [0],
    ),
    "padded by its mirror image": (
        (ROWS, [("Pad", ["x", "p"], ["y"], {"mode": "reflect"})], {"p": [2, 0, 1, 0]}),
        [3, 5],
        [0, 1, 2],
    ),
    "padded by its other end": (
        (ROWS, [("Pad", ["x", "p"], ["y"], {"mode": "wrap"})], {"p": [1, 0, 1, 0]}),
        [1, 5],
        [0],
    ),
    "divided by its size": (
        (
            ROWS,
            [
                *SIZE,
                ("Div", ["many", "n"], ["d"], {}),
                ("Concat", ["d", "one"], ["times"], {"axis": 0}),
                ("Tile", ["x", "times"], ["y"], {}),
            ],
            {"zero": [0], "many": [14], "one": [1]},
        ),
        [1, 2, 5],
        [0],
    ),
    "the remainder by its size": (
        (
            ROWS,
            [
                *SIZE,
                ("Mod", ["many", "n"], ["d"], {}),
                ("Concat", ["d", "one"], ["sizes"], {"axis": 0}),
                ("ConstantOfShape", ["sizes"], ["y"], {}),
            ],
            {"zero": [0], "many": [14], "one": [1]},
        ),
        [1, 2, 5],
        [0],
    ),
    "shared out in its size": (
        (
            ROWS,
            [
                *SIZE,
                ("Concat", ["rest", "n"], ["sizes"], {"axis": 0}),
                ("Reshape", ["c", "sizes"], ["y"], {}),
            ],
            {"zero": [0], "rest": [-1], "c": np.arange(14, dtype="float32")},
        ),
        [1, 2, 7],
        [0],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_small_sizes(
    name: str, run_onnx: Callable[..., list[np.ndarray]], rng: np.random.Generator
) -> None:
    (shape, nodes, constants), right, refused = CASES[name]
    model = build(shape, nodes, constants)
    runner = convoy.load(convoy.compile(model))
    for n in [*right, *refused]:
        x = rng.standard_normal([n if d == "n" else d for d in shape]).astype("float32")
        if n in right:
            wanted = run_onnx(model, x)[0]
            np.testing.assert_allclose(runner.run([x])[0], wanted, rtol=1e-5, atol=1e-5)
            continue
        with pytest.raises(
            ModelError, match=r"expected sizes that the network takes|pass at least"
        ) as error:
            runner.run([x])
        assert "\n" not in str(error.value)


def test_images_may_be_none_where_nothing_was_concluded_of_their_number(run_onnx, rng) -> None:
    nodes: list[Node] = [
        ("Conv", ["x", "w"], ["a"], {"pads": [1] * 4}),
        ("Relu", ["a"], ["b"], {}),
        ("GlobalAveragePool", ["b"], ["c"], {}),
        ("Shape", ["c"], ["s"], {}),
        ("Slice", ["s", "zero", "one"], ["n"], {}),
        ("Concat", ["n", "rest"], ["sizes"], {"axis": 0}),
        ("Reshape", ["c", "sizes"], ["y"], {}),
    ]
    w = rng.standard_normal((3, 2, 3, 3)).astype("float32")
    model = build(["n", 2, 6, 6], nodes, {"w": w, "zero": [0], "one": [1], "rest": [3]})
    runner = convoy.load(convoy.compile(model))
    for n in (0, 1, 3):
        x = rng.standard_normal((n, 2, 6, 6)).astype("float32")
        np.testing.assert_allclose(runner.run([x])[0], run_onnx(model, x)[0], rtol=1e-4, atol=1e-5)


def test_a_branch_for_sizes_of_0_is_not_forgotten(run_onnx, rng) -> None:
    # the branch that an If takes at sizes from 1 on stands in its place
    branches = {
        name: helper.make_graph(
            [helper.make_node(op, ["x"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, FLOAT, None)],
        )
        for name, op in (("then_branch", "Relu"), ("else_branch", "Neg"))
    }
    nodes: list[Node] = [
        *SIZE,
        ("Greater", ["n", "zero"], ["any"], {}),
        ("Squeeze", ["any"], ["some"], {}),
        ("If", ["some"], ["y"], branches),
    ]
    model = build(ROWS, nodes, {"zero": [0]})
    runner = convoy.load(convoy.compile(model))
    x = rng.standard_normal((3, 4)).astype("float32")
    np.testing.assert_array_equal(runner.run([x])[0], run_onnx(model, x)[0])
    with pytest.raises(ModelError, match="of them n is less than 1; let n be at least 1"):
        runner.run([x[:0]])


@pytest.mark.slow
@pytest.mark.parametrize("masked", [False, True])
def test_an_attention_may_have_no_keys(masked: bool, run_onnx, rng) -> None:
    # what it makes are sums of no values; the twin is a softmax that is read itself
    text = f"""<ir_version: 8, opset_import: ["": 17]> g
        (float[1,2,4,8] q, float[1,2,n,8] k, float[1,2,n,6] v, float[1,1,4,n] m) => (float[a,b,c,d] y) {{
        t = Transpose <perm = [0, 1, 3, 2]> (k) s = MatMul (q, t)
        p = {"Add (s, m)" if masked else "Identity (s)"} w = Softmax <axis = -1> (p) y = MatMul (w, v) }}"""
    model = onnx.parser.parse_model(text)
    report = convoy.Report()
    runner = convoy.load(convoy.compile(model, report=report))
    assert len(report.regions) == 1
    for n in (0, 1, 5, 0):
        shapes = (1, 2, 4, 8), (1, 2, n, 8), (1, 2, n, 6), (1, 1, 4, n)
        arrays = [rng.standard_normal(shape).astype("float32") for shape in shapes]
        (found,), (wanted,) = runner.run(arrays), run_onnx(model, *arrays)
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_what_is_too_small_is_told_by_name(rng) -> None:
    best = build(ROWS, [("TopK", ["x", "k"], ["y", "i"], {"axis": 0})], {"k": [3]})
    with pytest.raises(
        ModelError, match="of them n - 3, which y needs, is less than 0; let n be at least 3"
    ):
        convoy.load(convoy.compile(best)).run([rng.standard_normal((1, 4)).astype("float32")])
