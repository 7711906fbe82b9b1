"""Products over few channels are computed where the channels lie; each form with a twin that stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from building import Builder, multiply
from convoy.graph.ops import Binary, MatMul, Product, Softmax, Transpose
from convoy.graph.reference import run
from convoy.graph.rewrite import simplify
from convoy.graph.verify import verify
from graph.simplified import ops, simplified

H, N, D = 4, 9, 6
"""Heads, queries and keys, and the length of a query."""


def talk(b: Builder, x: str, out: int = H, bias: bool = True) -> str:
    """[1, H, N, N] -> rows of heads -> matmul (+ b) -> [1, H, N, N], as exporters write it."""
    made = b.add(MatMul, b.add(Transpose, x, perm=(0, 2, 3, 1)), b.weight(b.tensors[x].shape[1], out))
    made = b.add(Binary, made, b.weight(out), kind="add") if bias else made
    return b.add(Transpose, made, perm=(0, 3, 1, 2))


@pytest.mark.parametrize("out", [H, 7])
@pytest.mark.parametrize("bias", [False, True])
def test_heads_that_talk(out: int, bias: bool) -> None:
    # transpose(matmul(transpose(x), w) + b)  =>  product(wᵀ, x) + b
    b = Builder([1, H, N, N])
    found = ops(simplified(b, talk(b, "x0", out, bias)))
    assert found == ["product", *["add", "reshape"] * bias], "the output keeps its name by a reshape"


def test_a_bias_in_front() -> None:
    # b + matmul(transpose(x), w), as exporters write a linear layer
    b = Builder([1, H, N, N])
    made = b.add(MatMul, b.add(Transpose, "x0", perm=(0, 2, 3, 1)), b.weight(H, H))
    made = b.add(Binary, b.weight(H), made, kind="add")
    assert ops(simplified(b, b.add(Transpose, made, perm=(0, 3, 1, 2)))) == ["product", "add", "reshape"]


def test_an_attention_of_heads_that_talk() -> None:
    # nothing is moved, and no number a head is added in front of the softmax
    b = Builder([1, H, N, D], [1, H, D, N], [1, H, N, D])
    powers = b.add(Softmax, talk(b, multiply(b, "x0", "x1")), axis=3)
    after = simplified(b, multiply(b, talk(b, powers), "x2"))
    assert ops(after) == ["product", "product", "softmax", "product", "add", "product"]


def test_rows_that_nobody_turns_back_are_turned_behind() -> None:
    b = Builder([1, H, N, N])
    y = b.add(MatMul, b.add(Transpose, "x0", perm=(0, 2, 3, 1)), b.weight(H, 2))
    after = simplified(b, y)
    assert [type(node) for node in after.nodes] == [Product]


def test_any_batch() -> None:
    b = Builder([1, H, N, N], batch=None)
    before = b.graph(talk(b, "x0"))
    after = simplify(before)
    verify(after)
    assert ops(after) == ["product", "add", "reshape"]
    arrays = b.arrays(3)
    np.testing.assert_allclose(run(after, arrays)[0], run(before, arrays)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "perm"),
    [((1, 17, N, N), (0, 2, 3, 1)), ((1, H, 7, 9), (0, 2, 3, 1)), ((1, N, N, H), (0, 2, 1, 3))],
    ids=["many channels", "few numbers of each", "channels in their place"],
)
def test_what_stays_a_matmul(shape: tuple[int, ...], perm: tuple[int, ...]) -> None:
    b = Builder(list(shape))
    x = b.add(Transpose, "x0", perm=perm)
    after = simplified(b, b.add(MatMul, x, b.weight(b.tensors[x].shape[-1], 3)))
    assert "matmul" in ops(after)


@pytest.mark.parametrize("number", [3.0, -100.0])
@pytest.mark.parametrize("shape", [(1,), (N, 1), (H, 1, 1), (1, H, N, 1)])
def test_a_shift_does_not_change_a_softmax(shape: tuple[int, ...], number: float) -> None:
    # softmax(x + c)  =>  softmax(x)
    b = Builder([1, H, N, N])
    shifted = b.add(Binary, "x0", b.constant(np.full(shape, number, np.float32)), kind="add")
    assert ops(simplified(b, b.add(Softmax, shifted, axis=3, log=number > 0))) == ["softmax"]


@pytest.mark.parametrize(
    "other",
    [np.ones((N, N), np.float32), np.full((1,), 1e9, np.float32), np.full((N, 1), np.nan, np.float32)],
    ids=["along the axis", "in which x is lost", "no number"],
)
def test_what_changes_a_softmax_stays(other: Any) -> None:
    b = Builder([1, H, N, N])
    before = b.graph(b.add(Softmax, b.add(Binary, "x0", b.constant(other), kind="add"), axis=3))
    assert ops(simplify(before)) == ["add", "softmax"]
