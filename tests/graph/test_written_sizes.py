"""Sizes as exporters write them: what is no short expression is a name and nothing else."""

from __future__ import annotations

import pytest

from convoy.graph.sizes import open_size
from convoy.graph.written_sizes import MOST_DEEP, complete_shapes, compute_size, names_of

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


@pytest.mark.parametrize(
    ("written", "given", "completed"),
    [
        ([["n", "t"], ["n", "2*t + 1"]], [(3, 5), ()], [(3, 5), (3, 11)]),
        ([["n", "t"], ["n", "2*t + 1"]], [(), (None, 11)], [(1, 5), (1, 11)]),
        ([["n", "t"], ["n", "2*t + 1"]], [(), (1, 12)], [(1, "t"), (1, 12)]),  # no t makes that
        ([["n", "t + 9"], ["n", "t"]], [(1, 4)], [(1, 4), (1, "t")]),
        (
            [["n", "new"], ["n", "past + new"], ["2*n", "past"]],
            [(None, 2), (None, 9)],
            [(1, 2), (1, 9), (2, 7)],
        ),
        ([["h w", 3, "x.1"], ["x.1", "h w"]], [(4, 3, None), (7,)], [(4, 3, 7), (7,)]),
        ([[None, "t"], [None, None]], [(4, 2)], [(4, 2), (4, None)]),  # a batch without a name is one
        ([[], ["n"]], [], [(), (1,)]),
        ([["2*n"], ["n", "m"]], [], [(2,), (1, "m")]),
    ],
)
def test_what_follows_from_given_sizes_is_known(written: list, given: list, completed: list) -> None:
    given += [()] * (len(written) - len(given))
    assert complete_shapes(written, given) == completed


def test_a_batch_that_nothing_says_may_stay_open() -> None:
    assert complete_shapes([["n", "t"], [None, "t"]], [(None, 5), ()], None) == [("n", 5), (None, 5)]
