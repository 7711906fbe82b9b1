"""Rotary embeddings written out become one node, in the forms of exporters; each with a twin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import Binary, Concat, Reshape, Rotate, Slice, Transpose, Unary
from graph.simplified import ops, simplified

L, H, D = 5, 3, 8
"""Length, heads, numbers of a head."""


def part(b: Builder, x: str, begin: int, end: int, step: int = 1) -> str:
    return b.add(Slice, x, axis=len(b.tensors[x].shape) - 1, begin=begin, end=end, step=step)


def in_turns(b: Builder, first: str, second: str) -> str:
    shape = b.tensors[first].shape
    columns = [b.add(Reshape, x, shape=(*shape, 1)) for x in (first, second)]
    return b.add(Reshape, b.add(Concat, *columns, axis=len(shape)), shape=(*shape[:-1], 2 * shape[-1]))


def behind(b: Builder, first: str, second: str) -> str:
    return b.add(Concat, first, second, axis=len(b.tensors[first].shape) - 1)


def heads(b: Builder) -> str:
    """Those of a packed tensor [1, L, H·D], as [1, H, L, D]."""
    return b.add(Transpose, b.add(Reshape, "x0", shape=(1, L, H, D)), perm=(0, 2, 1, 3))


def total(b: Builder, x: str, turned: str, cos: str, sin: str) -> str:
    return b.add(
        Binary, b.add(Binary, x, cos, kind="mul"), b.add(Binary, turned, sin, kind="mul"), kind="add"
    )


def halves(b: Builder, minus: bool = True, swapped: bool = False, length: int = D // 2) -> str:
    x = heads(b)
    first, second = part(b, x, 0, length), part(b, x, length, D)
    second = b.add(Unary, second, kind="neg") if minus else second
    turned = behind(b, first, second) if swapped else behind(b, second, first)
    return total(b, x, turned, b.weight(L, D), b.weight(1, L, D))


def turns(b: Builder, begin: int = 0) -> str:
    x = heads(b)
    odd = b.add(Binary, part(b, x, 1 - begin, D, 2), b.constant(-1.0), kind="mul")
    return total(b, x, in_turns(b, odd, part(b, x, begin, D, 2)), b.weight(L, D), b.weight(L, D))


def parts(b: Builder, put: Callable[[Builder, str, str], str], step: int = 1, kind: str = "sub") -> str:
    x = heads(b)
    ends = [(0, D, 2), (1, D, 2)] if step == 2 else [(0, D // 2, 1), (D // 2, D, 1)]
    first, second = (part(b, x, *end) for end in ends)
    cos, sin = b.weight(L, D // 2), "x1"

    def product(x: str, y: str) -> str:
        return b.add(Binary, x, y, kind="mul")

    one = b.add(Binary, product(first, cos), product(sin, second), kind=kind)
    other = b.add(Binary, product(first, sin), product(second, cos), kind="add")
    return put(b, one, other)


def selected(b: Builder) -> str:
    """As complex numbers: [1, L, H, D / 2, 2], of which the last axis is read number by number."""
    x = b.add(Reshape, "x0", shape=(1, L, H, D // 2, 2))
    first, second = (b.add(Reshape, part(b, x, i, i + 1), shape=(1, L, H, D // 2)) for i in (0, 1))
    cos, sin = b.weight(L, 1, D // 2), b.weight(L, 1, D // 2)
    products = [b.add(Binary, x, y, kind="mul") for x in (first, second) for y in (cos, sin)]
    one = b.add(Binary, products[0], products[3], kind="sub")
    other = b.add(Binary, products[2], products[1], kind="add")
    return in_turns(b, one, other)


FORMS: dict[str, Callable[[Builder], str]] = {
    "halves": halves,
    "elements in turns": turns,
    "two parts": lambda b: parts(b, behind),
    "two parts of elements in turns": lambda b: parts(b, in_turns, 2),
    "two parts, put together otherwise": lambda b: parts(b, in_turns),
    "complex numbers": selected,
}

OTHERS: dict[str, Callable[[Builder], str]] = {
    "nothing negated": lambda b: halves(b, minus=False),
    "the other half negated": lambda b: halves(b, swapped=True),
    "parts of other lengths": lambda b: halves(b, length=3),
    "odd elements first": lambda b: turns(b, 1),
    "two sums": lambda b: parts(b, behind, kind="add"),
}


def built(make: Callable[[Builder], str]) -> Graph:
    """What is left of it with its axes moved behind, and an input that not each form reads."""
    b = Builder([1, L, H * D], [1, 1, L, D // 2])
    return simplified(b, b.add(Transpose, make(b), perm=(0, 2, 1, 3)), b.add(Unary, "x1", kind="exp"))


@pytest.mark.parametrize("form", FORMS)
def test_a_rotary_embedding_is_one_node(form: str) -> None:
    graph = built(FORMS[form])
    assert sorted(ops(graph)) == ["exp", "rotate"]
    (node,) = (node for node in graph.nodes if isinstance(node, Rotate))
    assert node.inputs[0] == "x0"


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_none_stays(form: str) -> None:
    assert "rotate" not in ops(built(OTHERS[form]))
