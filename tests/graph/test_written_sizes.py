"""Sizes as exporters write them: what is no short expression is a name and nothing else."""

from __future__ import annotations

import pytest

from convoy.graph.sizes import open_size
from convoy.graph.written_sizes import MOST_DEEP, compute_size, names_of

VALUES = {"s71": 5, "past": 7, "h": 9}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("32*s71", 160),  # as PyTorch's exporter writes them
        ("s71 + 1", 6),
        ("2*s71 - 1", 9),
        ("s71*past", 35),
        ("2*((h//2))", 8),
        ("past + s71", 12),  # as Optimum does
        ("1 + 2 * past - s71 // 2 - -h", 22),
        ("(s71 - 1)//3//1", 1),
    ],
)
def test_what_an_expression_comes_to(text: str, number: int) -> None:
    assert compute_size(text, VALUES) == number
    values = {name: open_size(name, 1) for name in VALUES}
    assert compute_size(repr(compute_size(text, values)), VALUES) == number


@pytest.mark.parametrize(
    "text",
    [
        *("", "h w", "h/2", "h**2", "h//0", "h//past", "h//-2", "h//(2)", "h +", "*h", "(h", "h)", "()"),
        *("other + 1", "Max(1, h)", "h.0 + 1", "h\n+ 1", "h + 1\n", "1e3*h", "0x10*h", "h if h else 1"),
        *("h + " * 200 + "h", "(" * 500, "-" * 500 + "h", "9" * 90 + "*h", "99999*99999*h", "٣*h", "h²"),
    ],
)
def test_what_is_none(text: str) -> None:
    assert compute_size(text, VALUES) is None


def test_the_deepest_text_is_read() -> None:
    deep = MOST_DEEP
    assert compute_size("(" * deep + "h" + ")" * deep, VALUES) == 9
    assert compute_size("-" * deep + "h", VALUES) == 9
    assert compute_size("+".join(["(h)"] * 99), VALUES) == 99 * 9
    deep += 1
    assert compute_size("(" * deep + "h" + ")" * deep, VALUES) is None
    assert compute_size("-" * deep + "h", VALUES) is None


def test_names_are_told_once() -> None:
    assert names_of("past + h * (past - 2)") == ("past", "h")
    assert names_of("n") == ("n",)
    assert names_of("past / h") == ()
