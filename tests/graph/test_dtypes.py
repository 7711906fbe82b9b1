"""Every tensor knows the type of its elements, and nothing changes it in silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from building import views_of_product
from convoy.errors import GraphError, LoweringError
from convoy.graph import Graph, Tensor
from convoy.graph.builder import Builder
from convoy.graph.digest import content_hash
from convoy.graph.dtypes import ARRAYS, BYTES, DType, cell_elements, dtype_of
from convoy.graph.ops import Binary, Concat, Node, Pad, Product, Reshape, Slice, Softmax, Transpose, Unary
from convoy.graph.reference import run
from convoy.graph.verify import verify
from convoy.kernels.planner import make_plan
from convoy.target import Target

DTYPES = list(BYTES)
OTHERS = [dtype for dtype in DTYPES if dtype != "float32"]


def one_node(node: Node, shape: tuple[int, ...], dtype: DType, made: DType | None = None) -> Graph:
    tensors = {"x": Tensor("x", (1, 4, 6), dtype), "y": Tensor("y", shape, made or dtype)}
    return Graph(("x",), ("y",), (node,), tensors)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cell_is_32_bits_of_any_type(dtype: DType) -> None:
    assert cell_elements(dtype) * BYTES[dtype] == 4
    assert ARRAYS[dtype].itemsize == BYTES[dtype]
    assert Tensor("x", (1, 3, 5), dtype).bytes == 15 * BYTES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("node", "shape"),
    [
        (Reshape(inputs=("x",), output="y"), (1, 24)),
        (Transpose(inputs=("x",), output="y", perm=(0, 2, 1)), (1, 6, 4)),
        (Slice(inputs=("x",), output="y", axis=1, begin=1, end=3), (1, 2, 6)),
        (Concat(inputs=("x", "x"), output="y", axis=2), (1, 4, 12)),
        (Pad(inputs=("x",), output="y", widths=((0, 0), (1, 0), (2, 2)), value=100), (1, 5, 10)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_ops_that_move_elements_keep_their_type(node: Node, shape: tuple[int, ...], dtype: DType) -> None:
    graph = one_node(node, shape, dtype)
    verify(graph)
    large = np.full((1, 4, 6), 100, ARRAYS[dtype])
    (y,) = run(graph, [large], np.float64)
    assert y.dtype == (np.float64 if dtype == "float32" else ARRAYS[dtype])
    np.testing.assert_array_equal(y, np.full(shape, 100))
    with pytest.raises(GraphError, match=rf"expected %y of {dtype}, got "):
        verify(one_node(node, shape, dtype, "uint8" if dtype != "uint8" else "int8"))


@pytest.mark.parametrize("dtype", OTHERS)
def test_ops_that_compute_know_float32_alone(dtype: DType) -> None:
    relu = Unary(inputs=("x",), output="y", kind="relu")
    verify(one_node(relu, (1, 4, 6), "float32"))
    with pytest.raises(GraphError, match=rf"verify: relu %y: expected %x of float32, got {dtype}"):
        verify(one_node(relu, (1, 4, 6), dtype))


@pytest.mark.parametrize("dtype", OTHERS)
def test_what_no_kernel_knows_is_refused_before_it_is_planned(dtype: DType) -> None:
    softmax = Softmax(inputs=("x",), output="y", axis=2)
    assert make_plan(one_node(softmax, (1, 4, 6), "float32"), Target("avx2")).steps
    problem = rf"plan: softmax %y: expected tensors of float32, got %x of {dtype}"
    with pytest.raises(GraphError, match=problem):
        make_plan(one_node(softmax, (1, 4, 6), dtype), Target("avx2"))


def build(array: np.ndarray[Any, Any]) -> tuple[Builder, str]:
    b = Builder("flat")
    b.input("x", (1, 4))
    return b, b.constant(array)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_a_constant_has_the_type_of_its_array(dtype: DType) -> None:
    array = np.arange(4).astype(ARRAYS[dtype])
    b, name = build(array)
    assert b.tensors[name].dtype == dtype == dtype_of(array)
    assert b.constants[name].dtype == array.dtype


@pytest.mark.parametrize("dtype", [np.float64, np.float16, np.int64, np.bool_, np.uint16])
def test_no_constant_is_rounded_in_silence(dtype: type) -> None:
    with pytest.raises(LoweringError, match=r"lower: constant: expected a constant of float32, .*, got "):
        build(np.ones(4, dtype))


def test_constants_of_two_types_do_not_meet() -> None:
    b, name = build(np.ones(4, np.int32))
    y = b.node(Binary, ("x", name), (1, 4), kind="add")
    with pytest.raises(GraphError, match=r"add %t0: expected %c0 of float32, got int32"):
        verify(b.finish(("x",), (y,), 1))


@pytest.mark.parametrize("dtype", OTHERS)
def test_a_constant_is_held_as_its_tensor_says(dtype: DType) -> None:
    concat = Concat(inputs=("x", "c"), output="y", axis=2)
    graph = one_node(concat, (1, 4, 8), dtype)
    tensors = {**graph.tensors, "c": Tensor("c", (1, 4, 2), dtype)}
    graph = replace(graph, tensors=tensors, constants={"c": np.ones((1, 4, 2), ARRAYS[dtype])})
    verify(graph)
    with pytest.raises(GraphError, match=rf"tensor %c: expected a {dtype} constant.*, got float32"):
        verify(replace(graph, constants={"c": np.ones((1, 4, 2), np.float32)}))


def test_graphs_of_two_types_have_two_names() -> None:
    reshape = Reshape(inputs=("x",), output="y")
    assert len({content_hash(one_node(reshape, (1, 24), dtype)) for dtype in DTYPES}) == len(DTYPES)


def product(**constants: np.ndarray[Any, Any]) -> Graph:
    shapes = {"x": (1, 2, 3, 4), "y": (1, 2, 4, 5), "z": (1, 2, 3, 5)}
    inputs = tuple(name for name in ("x", "y") if name not in constants)
    a, b, whole = views_of_product(shapes["x"], shapes["y"])
    node = Product(inputs=("x", "y"), output="z", a=a, b=b, y=whole)
    return Graph(inputs, ("z",), (node,), {n: Tensor(n, s) for n, s in shapes.items()}, constants)


def test_a_graph_holds_a_product_of_two_computed_operands() -> None:
    graph = product()
    verify(graph)
    random = np.random.default_rng(0)
    x, y = random.standard_normal((1, 2, 3, 4)), random.standard_normal((1, 2, 4, 5))
    (z,) = run(graph, [x, y], np.float64)
    np.testing.assert_allclose(z, np.einsum("ahik,ahkj->ahij", x, y), rtol=1e-12)


def test_the_images_of_a_batch_are_no_axis_of_a_product() -> None:
    verify(replace(product(), batch=None))  # each image by itself
    shapes = {"x": (1, 3, 4), "y": (4, 5), "z": (1, 3, 5)}
    a, b, whole = views_of_product(shapes["x"], shapes["y"])
    node = Product(inputs=("x", "y"), output="z", a=a, b=b, y=whole)
    graph = Graph(("x", "y"), ("z",), (node,), {n: Tensor(n, s) for n, s in shapes.items()}, batch=None)
    with pytest.raises(GraphError, match=r"expected the shape of one image"):
        verify(graph)
