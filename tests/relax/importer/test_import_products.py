"""Products of computed operands whose sizes are open: Einsum, MatMul and Gemm, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

import convoy
from convoy.errors import ModelError
from convoy.relax.importer import load
from convoy.report.decision import Report

Shape = tuple[int, ...]
EQUATIONS: dict[str, tuple[list[list[Any]], list[list[Shape]]]] = {
    "bij,bjk->bik": (
        [["n", "a", "b"], ["m", "c", "d"]],
        [[(2, 3, 4), (2, 4, 5)], [(2, 3, 4), (1, 4, 5)], [(1, 3, 4), (2, 4, 5)], [(2, 3, 4), (2, 1, 5)]],
    ),
    "bqhd,bkhd->bhqk": (
        [["n", "s", 4, 8], ["n", "t", 4, 8]], [[(2, 3, 4, 8), (2, 5, 4, 8)], [(1, 1, 4, 8), (1, 7, 4, 8)]],
    ),
    "bhqk,bkhd->bqhd": ([["n", 4, "s", "t"], ["n", "t", 4, 8]], [[(2, 4, 3, 5), (2, 5, 4, 8)]]),
    "ij,j->i": ([["n", "a"], ["b"]], [[(2, 3), (3,)], [(2, 3), (1,)]]),
    "abc,cde->dabe": ([["n", 3, 4], [4, 5, 6]], [[(2, 3, 4), (4, 5, 6)]]),
    "abc,adc->bd": ([["n", 3, 4], ["n", 5, 4]], [[(2, 3, 4), (2, 5, 4)]]),
    "bij,bkj,bkl->bil": (
        [["n", "a", "b"], ["n", "c", "b"], ["n", "c", "d"]], [[(2, 3, 4), (2, 5, 4), (2, 5, 6)]],
    ),
    "ab,cd,ef->acf": ([["n", 4], [1, 4], [2, 2]], [[(3, 4), (1, 4), (2, 2)]]),
    "...ij,...kj->...ik": (
        [["n", "a", "b"], ["m", "a", "b"]], [[(2, 3, 4), (2, 3, 4)], [(2, 3, 4), (1, 3, 4)]],
    ),
    "b...,b->b...": ([["n", "a", 3], ["n"]], [[(3, 4, 3), (3,)]]),
    " i j , j k ": ([["n", "a"], ["a", "c"]], [[(2, 3), (3, 4)]]),
    "bii->bi": ([["n", "a", "b"]], [[(2, 3, 3)]]),
    "iij,jk": ([[3, 3, "a"], ["a", 5]], [[(3, 3, 4), (4, 5)]]),
    "bij->bji": ([["n", "a", "b"]], [[(2, 3, 4)]]),
    "ij->": ([["n", "a"]], [[(2, 3)]]),
}  # fmt: skip


def einsum(make_model, equation: str, dims: list[list[Any]]):
    names = [f"x{i}" for i in range(len(dims))]
    node = helper.make_node("Einsum", names, ["y"], equation=equation)
    return make_model([node], dict(zip(names, dims, strict=True)))


def draw(rng, shapes: list[Shape]) -> list[np.ndarray]:
    return [rng.standard_normal(shape).astype("float32") for shape in shapes]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_an_einsum_of_open_sizes(equation: str, make_model, run_tvm, run_onnx, rng) -> None:
    # TVM read behind an operand that broadcasts, and behind a shorter one
    dims, cases = EQUATIONS[equation]
    model = einsum(make_model, equation, dims)
    module = load(model)
    for shapes in cases:
        arrays = draw(rng, shapes)
        expected = run_onnx(model, *arrays)[0]
        np.testing.assert_allclose(run_tvm(module, *arrays)[0], expected, rtol=1e-4, atol=1e-5)


def test_an_einsum_is_a_product_of_a_region(make_model) -> None:
    report = Report()
    dims = [["n", "s", 4, 8], ["n", "t", 4, 8]]
    convoy.compile(einsum(make_model, "bqhd,bkhd->bhqk", dims), report=report)
    assert report.flops_share == 1


@pytest.mark.parametrize(
    ("equation", "dims", "shapes"),
    [
        ("bij,bjk->bik", [["n", "a", "b"], ["m", "c", "d"]], [(2, 3, 4), (2, 3, 5)]),
        ("bii->bi", [["n", "a", "b"]], [(2, 3, 4)]),
    ],
)
def test_an_einsum_of_sizes_that_differ_ends_the_call(
    equation, dims, shapes, make_model, run_tvm, rng
) -> None:
    module = load(einsum(make_model, equation, dims))
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, *draw(rng, shapes))


@pytest.mark.parametrize(
    ("equation", "problem"),
    [
        ("ij,kj->ik", "sizes that are equal or 1, got 3 and 4"),
        ("ij,jk->iz", r"an equation for operands of \[2, 2\] axes, got 'ij,jk->iz'"),
        ("ij,jkl->ik", r"an equation for operands of \[2, 2\] axes, got 'ij,jkl->ik'"),
        ("ij->i", r"an equation for operands of \[2, 2\] axes, got 'ij->i'"),
        ("i*,*k->ik", r"an equation for operands of \[2, 2\] axes, got 'i\*,\*k->ik'"),
    ],
)
def test_an_equation_that_does_not_fit_is_refused(equation: str, problem: str, make_model) -> None:
    with pytest.raises(ModelError, match=f"Einsum y: expected {problem}"):
        load(einsum(make_model, equation, [[2, 3], [5, 4]]))


PRODUCTS = {
    "batches that broadcast": (
        "MatMul x z", {}, [["n", "a", "b"], ["m", "c", "d"]],
        [[(2, 3, 4), (2, 4, 5)], [(2, 3, 4), (1, 4, 5)], [(1, 3, 4), (2, 4, 5)]], [(3, 3, 4), (2, 4, 5)],
    ),
    "a vector behind": ("MatMul x z", {}, [["n", "a", "b"], ["c"]], [[(2, 3, 4), (4,)]], [(2, 3, 4), (3,)]),
    "a vector in front": (
        "MatMul x z", {}, [["c"], ["n", "a", "b"]], [[(3,), (2, 3, 4)]], [(4,), (2, 3, 4)],
    ),
    "two vectors": ("MatMul x z", {}, [["n"], ["m"]], [[(3,), (3,)]], [(4,), (3,)]),
    "Gemm": ("Gemm x z", {}, [["n", "a"], ["b", "c"]], [[(2, 3), (3, 4)]], [(2, 3), (2, 4)]),
    "Gemm and what it adds": (
        "Gemm x z c", {"transA": 1, "transB": 1}, [["a", "n"], ["c", "b"], ["p", "q"]],
        [[(3, 2), (4, 3), (2, 4)], [(3, 2), (4, 3), (1, 4)], [(3, 2), (4, 3), (2, 1)]],
        [(3, 2), (4, 3), (2, 3)],
    ),
    "Gemm and a vector": (
        "Gemm x z c", {}, [["n", "a"], ["b", "c"], [4]], [[(2, 3), (3, 4), (4,)]], [(2, 3), (3, 5), (4,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_of_open_sizes(name: str, make_model, run_tvm, run_onnx, rng) -> None:
    node, attributes, dims, cases, wrong = PRODUCTS[name]
    op, *inputs = node.split()
    nodes = [helper.make_node(op, inputs, ["y"], **attributes)]
    model = make_model(nodes, dict(zip(inputs, dims, strict=True)))
    module = load(model)
    for shapes in cases:
        arrays = draw(rng, shapes)
        expected = run_onnx(model, *arrays)[0]
        np.testing.assert_allclose(run_tvm(module, *arrays)[0], expected, rtol=1e-4, atol=1e-5)
    with pytest.raises(Exception, match="match_cast error"):
        run_tvm(module, *draw(rng, wrong))
