"""Sizes that are known at the call: their arithmetic is that of ints, and they pass for no number."""

from __future__ import annotations

import math
import operator
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from building import Builder
from convoy.errors import GraphError, OpenSizeError
from convoy.graph.least import settle_least
from convoy.graph.ops import Concat, Conv2d, Node, Pool2d, Reduce, Reshape, Slice, Transpose, Unary
from convoy.graph.sizes import (
    as_shifted_quotient,
    as_symbol,
    bind,
    bounds,
    hint,
    is_open,
    largest,
    open_size,
    rewrite,
    smallest,
    spell,
    substitute,
    symbols,
    write,
)

H, W = open_size("h", 20), open_size("w", 30)
TALL, WIDE = open_size("tall", 20, least=2), open_size("wide", 30, least=2)


def draw(random: random.Random, depth: int, h: int, w: int) -> tuple[int, int]:
    """An expression twice: of sizes, and of the numbers that they stand for."""
    if depth == 0:
        number = random.randint(0, 9)
        return random.choice([(H, h), (W, w), (number, number)])
    (a, x), (b, y) = (draw(random, depth - 1, h, w) for _ in range(2))
    k = random.choice([1, 2, 3, 4, 8])
    made: list[Callable[[], tuple[int, int]]] = [
        lambda: (a + b, x + y),
        lambda: (a - b, x - y),
        lambda: (a * k, x * k),
        lambda: (a * b, x * y) if depth < 3 else (a, x),
        lambda: (a // k, x // k),
        lambda: (-(-a // k), -(-x // k)),
        lambda: (a % k, x % k),
        lambda: (a | 1, x | 1),
        lambda: (largest(a, b), max(x, y)),
        lambda: (smallest(a, b), min(x, y)),
        lambda: (largest(a, b, a - 3, 2 * b), max(x, y, x - 3, 2 * y)),
    ]
    return random.choice(made)()


@pytest.mark.parametrize("seed", range(300))
def test_arithmetic_is_that_of_ints(seed: int) -> None:
    rng = random.Random(seed)
    h, w = rng.randint(1, 40), rng.randint(1, 40)
    size, number = draw(rng, rng.randint(1, 4), h, w)
    values = {as_symbol(H): h, as_symbol(W): w}
    assert bind(size, values) == number  # type: ignore[arg-type]
    low, high = bounds(size)
    assert low <= number <= high
    names = {"h": h, "w": w, "convoy_max": max, "convoy_min": min}
    assert eval(repr(size), names) == number
    names["convoy_floor"] = lambda above, below: above // below
    c = re.sub(r"\bf->", "", spell(size, "f->")).replace("/", "//")
    assert eval(c, names) == number


@pytest.mark.parametrize(
    ("size", "same"),
    [
        ((H + 6 - 7) // 2 + 1, (H + 1) // 2),
        (((H + 1) // 2 + 1) // 2, (H + 3) // 4),
        ((4 * H + 2) // 4, H),
        ((2 * H + 3) // 4, (H + 1) // 2),
        (-(-H // 4), (H + 3) // 4),
        (H * W // W, H),
        (H - H // 2, (H + 1) // 2),
        (H // 2 + (H + 1) // 2, H),
        (H // 4 - H // 8, (H // 4 + 1) // 2),
        (W * (H // 2) - W * H, -W * ((H + 1) // 2)),
        (5 * W + W * ((H + 6) // 2) - W * H, 8 * W - W * ((H + 1) // 2)),
        (H + W - (H + W) // 2, (H + W + 1) // 2),
        (7 * H - 7 * (6 * H // 7), 7 * ((H + 6) // 7)),
        (((H + 1) // 2 + H - H // 2) // 2, (H + 1) // 2),
        (((H + 3) // 4 - (H + 1) // 4) // 2, (H + 3) // 4 - ((H + 3) // 4 + (H + 1) // 4 + 1) // 2),
        (((7 * (H // 4) + 1) // 2 + 3) // 4, (7 * (H // 4) + 7) // 8),
        (4 * H // 3 - H // 3, H),
        (4 * (4 * ((H + 3) // 4) // 3) - 4 * ((H + 3) // 12), 4 * ((H + 3) // 4)),
        (H + (3 * ((H + 2) // 3) - H) // 2 + (3 * ((H + 2) // 3) - H + 1) // 2, 3 * ((H + 2) // 3)),
        ((H + W // 2 + W // 4 - 3 * H // 2) // 6, -((H // 2 - W // 2 - W // 4 + 5) // 6)),
        (H * 2 - H - H + 5, 5),
        (H % 1, 0),
    ],
)
def test_equal_sizes_have_one_form(size: int, same: int) -> None:
    assert size == same
    assert hash(size) == hash(same)


@pytest.mark.parametrize(
    ("size", "low", "high"),
    [
        ((H + 1) // 2 - H // 2, 0, 1),
        (H - 2 * (H // 2), 0, 1),
        (3 * ((H + 2) // 3) - H, 0, 2),
        (H - 3 * (H // 3) - (H - 3 * (H // 3) + 1) // 2, 0, 1),
        (H // 2 + (H + 1) // 2 - H, 0, 0),
        (H - W // 2, -math.inf, math.inf),
        ((H + 1) // 3 + 2, 2, math.inf),  # thirds and sevenths are no floats
        ((H + 5) // 7, 0, math.inf),
        (8 - (H + 4) // 6, -math.inf, 8),
        ((H + 1) * (W + 2) - H - W, 4, math.inf),  # hw + h + 2
        (4 * TALL * WIDE - 4 * TALL - 4 * WIDE + 4, 4, math.inf),  # 4(h - 1)(w - 1)
        (4 * H * W - 4 * H - 4 * W + 3, -1, math.inf),
        (H + largest(0, 3 * ((H + 2) // 3) - H - 1), 2, math.inf),  # no smaller than either makes it
        (smallest(2 * H, 3 * W) - 2 * H, -math.inf, 0),
        (WIDE - H, -math.inf, math.inf),
        (TALL * (TALL - 1) * (TALL - 1), 2, math.inf),
        (smallest(H, 3) * smallest(H, 3), 1, 9),
        (9 - smallest(H, 3) * smallest(H, 3), 0, 8),
        (smallest(H, 3) * smallest(H, 3) * smallest(W, 2), 1, 18),
        (2 * H * W - W, 1, math.inf),  # a factor of all terms is taken out
        (3 * H * W - 2 * W * W, -math.inf, math.inf),
        (H - smallest(H, 64), 0, math.inf),  # below 64 the one is the other, from there on 64
        (W * smallest(H, 64) - W, 0, math.inf),
        (smallest(H, 64) - smallest(W, 64), -63, 63),  # the twin: of two sizes nothing is known
    ],
)
def test_what_divisions_leave_is_bounded(size: int, low: float, high: float) -> None:
    assert bounds(size) == (low, high)


@pytest.mark.parametrize(
    ("size", "same"),
    [
        (H - largest(0, H - 64), smallest(H, 64)),
        (smallest(64, H) + 64 - largest(0, 64 - H), 2 * smallest(H, 64)),
        (smallest(H // 2 + 3, 8), 3 + smallest(5, H // 2)),
    ],
)
def test_extremes_with_a_number_have_one_form(size: int, same: int) -> None:
    assert size == same
    assert size != same + 1
    assert largest(H, W) != smallest(H, W)


def test_extremes_of_extremes_are_one_without_what_is_never_the_extreme() -> None:
    deep = open_size("d", 9)
    assert largest(largest(H, W), deep) == largest(deep, largest(W, H)) == largest(H, W, deep)
    assert hash(largest(largest(H, W), deep)) == hash(largest(W, deep, H))
    assert largest(largest(H, W), deep, 2 * W) == largest(H, 2 * W, deep)
    assert smallest(H, W, deep, 2 * W) == smallest(W, smallest(deep, H))
    assert largest(largest(H, W), W) == largest(H, W) != largest(H, W, deep)
    assert bind(largest(H, W, deep), {as_symbol(H): 3, as_symbol(W): 1, as_symbol(deep): 2}) == 3  # type: ignore[dict-item]
    assert spell(largest(H, W, 2 * deep), "") == "(convoy_max(convoy_max(h, w), 2 * d))"
    mixed = largest(smallest(H, W), deep)  # the twin: the smallest of two is none of the sizes
    assert spell(mixed, "") == "(convoy_max(d, convoy_min(h, w)))"


def test_what_is_known_of_a_size_follows_its_least_value() -> None:
    size = open_size("n", 9)
    symbol = as_symbol(size)
    assert symbol is not None
    assert bounds(size // 2 - 3) == (-3, math.inf)
    symbol.least = 8
    assert bounds(size // 2 - 3) == (1, math.inf)
    assert size // 2 > 3


@pytest.mark.parametrize(("size", "other"), [(H, W), (H // 2, (H + 1) // 2), (H, 20), (20, H), (H, 1)])
def test_sizes_that_may_differ_are_not_equal(size: int, other: int) -> None:
    assert size != other


@pytest.mark.parametrize(
    "use",
    [
        lambda: int(H),
        lambda: range(H),
        lambda: [0] * H,
        lambda: H > 5,
        lambda: max(H, W),
        lambda: bool(H - 5),
        lambda: H // W,
        lambda: f"{H:d}"[H],
    ],
)
def test_a_size_passes_for_no_number(use: Callable[[], Any]) -> None:
    with pytest.raises((OpenSizeError, TypeError)):
        use()


def test_what_holds_at_every_call_is_decided() -> None:
    assert H >= 1
    assert H + 2 > 2
    assert not (H + 1) // 2 < 1
    assert bool(H * W)
    assert H >= 1
    assert largest(H, 1) == H == smallest(H, H + 1)


def test_estimates_are_made_of_what_is_likely() -> None:
    assert H * 2.5 == 50.0
    assert W / 4 == 7.5
    assert hint((H, (W + 1) // 2, 3)) == (20, 15, 3)
    assert f"{H * 1024 / 1024:.1f}" == "20.0"


def test_a_size_is_solved_for_its_symbol() -> None:
    half = as_shifted_quotient((H + 1) // 2 + 3)
    assert half is not None
    (h,) = symbols(H)
    values = half.solve(W)
    assert [substitute((H + 1) // 2 + 3, h, value) for value in values] == [W, W]
    assert as_shifted_quotient(H * 2) is None


def test_rules_set_the_least_size_of_a_call() -> None:
    # until it is settled the convolution's rule is open, so the graph is made with larger ones
    b = Builder([1, 3, open_size("h", 20, 64), open_size("w", 5, 64)])
    x = b.add(Conv2d, "x0", b.weight(4, 3, 7, 9))
    graph = b.graph(b.add(Pool2d, x, kind="max", kernel=(2, 2), stride=(2, 2)))
    for at in graph.open_axes:
        at.symbol.least = 1
    graph = settle_least(graph)
    assert [at.symbol.least for at in graph.open_axes] == [8, 10]  # 7 + 1, and 9 + 1
    assert [at.symbol.hint for at in graph.open_axes] == [20, 10]
    assert graph.likely.shape(graph.outputs[0]) == (1, 4, 7, 1)


@pytest.mark.parametrize(
    ("parts", "both"),
    [
        (lambda h: (h // 2, (h + 1) // 2), [3, 4]),
        (lambda h: ((h + 1) // 2, h // 2), [4, 3]),
        (lambda h: (h - smallest(2, h), smallest(2, h)), [5, 2]),
        # the twins: what no call misses, and sizes of which nothing is known, of two others, or that shrink
        (lambda h: (h, h), [3, 4]),
        (lambda h: (), [3, 4]),
        (lambda h: (h, W), [3, 4]),
        (lambda h: (h, 8 - h), [3, 4]),
    ],
)
def test_what_one_size_lacks_the_other_has(parts: Callable[[int], Any], both: list[int]) -> None:
    # a convolution of 7 pixels along both, one beside the other
    own = [open_size(name, 20, 64) for name in "uv"]
    b = Builder([1, 3, own[0], 8], [1, 3, own[1], 8])
    x = b.add(Concat, "x0", "x1", axis=2)
    graph = b.graph(b.add(Conv2d, x, b.weight(4, 3, 7, 1)))
    for at in graph.open_axes:
        at.symbol.least = 1
    made_of = {symbol: of for part, of in zip(own, parts(H), strict=False) for symbol in symbols(part)}
    graph = settle_least(graph, (), made_of)
    assert [at.symbol.least for at in graph.open_axes] == both


@pytest.mark.parametrize(
    ("of", "least"),
    [
        (lambda h: h - 5, 6),
        (lambda h: h // 2, 2),
        (lambda h: 2 * h, 1),
        # the rows of a table from 64 - h to 64 + h, h times: DeBERTa's relative positions
        (lambda h: (smallest(64, h) + 64 - largest(0, 64 - h)) * h, 1),
        (lambda h: (smallest(64, h) - largest(0, 64 - h)) * h, 33),  # the twin: 2 * min(64, h) - 64
    ],
)
def test_every_input_has_elements(of: Callable[[int], int], least: int) -> None:
    h = open_size("h", 20)
    b = Builder([1, 3, h, of(h)])
    graph = settle_least(b.graph(b.add(Unary, "x0", kind="relu")), filled=True)
    assert [at.symbol.least for at in graph.open_axes] == [least]


@pytest.mark.parametrize(
    ("op", "given", "least"),
    [
        (Unary, {"kind": "relu"}, 5),
        (Reduce, {"kind": "sum", "axes": (2,)}, 5),
        (Reduce, {"kind": "mean", "axes": (3,)}, 5),
        (Reduce, {"kind": "mean", "axes": (2,)}, 6),  # the twin
    ],
)
def test_what_makes_nothing_of_nothing_needs_no_elements(
    op: type[Node], given: dict[str, Any], least: int
) -> None:
    h = open_size("h", 20)
    b = Builder([1, 3, h, 4], [1, 3, h - 5, 4])
    graph = settle_least(b.graph(b.add(op, "x1", **given)))
    assert [(at.symbol.least, at.symbol.hint) for at in graph.open_axes] == [(least, 20)]


@pytest.mark.parametrize(
    ("moves", "beside", "axis", "least"),
    [
        ([], (1, 3, 8, 5), 3, 0),
        ([(Transpose, {"perm": (0, 3, 1, 2)})], (1, 5, 3, 8), 1, 0),
        ([(Slice, {"axis": 2, "begin": 0, "end": 1})], (1, 3, 1, 5), 3, 0),
        ([(Slice, {"axis": 1, "begin": 0, "end": 1}), (Reshape, {"shape": (1, 8, H)})], (1, 8, 5), 2, 0),
        ([(Reshape, {"shape": (1, 3, 2, 4, H)})], (1, 3, 2, 4, 5), 4, 0),
        # the twins: a part of what may be nothing, an axis that is added up, and computing in between
        ([(Slice, {"axis": 3, "begin": 0, "end": H, "step": 2})], (1, 3, 8, 5), 3, 1),
        ([(Reshape, {"shape": (1, 3, 8 * H)})], (1, 3, 5), 2, 1),
        ([(Unary, {"kind": "relu"})], (1, 3, 8, 5), 3, 1),
    ],
)
def test_what_is_moved_and_put_beside_others_may_be_nothing(
    moves: list[tuple[type[Node], dict[str, Any]]], beside: tuple[int, ...], axis: int, least: int
) -> None:
    b = Builder([1, 3, 8, H], beside)
    x = "x0"
    for op, given in moves:
        x = b.add(op, x, **given)
    graph = settle_least(b.graph(b.add(Concat, x, "x1", axis=axis)), filled=True)
    try:
        assert [at.symbol.least for at in graph.open_axes] == [least]
    finally:
        for at in graph.open_axes:
            at.symbol.least = 1


@pytest.mark.parametrize(
    ("last", "beside", "least"), [(Transpose, True, 0), (Unary, True, 0), (Unary, False, 1)]
)
def test_what_leaves_beside_others_may_be_nothing(last: type[Node], beside: bool, least: int) -> None:
    """The part of a cache that the next region puts beside others; alone it leaves nothing to compute."""
    b = Builder([1, 2, H, 8], [1, 1, 5, 8])
    held, leaving = (b.add(Slice, "x0", axis=1, begin=n, end=n + 1) for n in range(2))
    joined = [b.add(Concat, held, "x1", axis=2)] if beside else []
    given: dict[str, Any] = {"perm": (0, 2, 1, 3)} if last is Transpose else {"kind": "relu"}
    graph = settle_least(b.graph(*joined, b.add(last, leaving, **given)))
    try:
        assert [at.symbol.least for at in graph.open_axes] == [least]
    finally:
        for at in graph.open_axes:
            at.symbol.least = 1


def test_likely_sizes_leave_nothing_empty() -> None:
    h = open_size("h", 20)
    b = Builder([1, 3, h, largest(h, 64) - 64])
    graph = settle_least(b.graph(b.add(Unary, "x0", kind="relu")))
    assert [(at.symbol.least, at.symbol.hint) for at in graph.open_axes] == [(1, 65)]


def test_a_window_that_may_see_no_pixel_is_refused() -> None:
    b = Builder([1, 3, open_size("h", 20), 8])
    with pytest.raises(GraphError, match="a pixel in every window"):
        b.add(Pool2d, "x0", kind="max", kernel=(2, 2), stride=(1, 1), padding=(2, 0, 0, 0))


def test_what_holds_sizes_is_open() -> None:
    assert is_open((1, 2, H))
    assert not is_open((1, 2, 3))


def test_a_sum_of_products_divides_where_the_rest_is_known() -> None:
    n, t = open_size("n", 3), open_size("t", 5, 2)
    assert ((n + 3) * (t + 2) * 6) // (n + 3) == 6 * t + 12
    assert 7 // (8 * t) == 0
    assert (8 * t * n + 7) // (8 * t) == n
    with pytest.raises(OpenSizeError):
        (n + t) // t
    none = open_size("none", 3, 0)  # an axis that may be empty: as often as there are whole ones
    assert (none * n) // none == n
    with pytest.raises(OpenSizeError):
        (none * n + 1) // none


def test_a_length_is_rewritten_in_terms_of_another() -> None:
    h, w, pixels = open_size("h", 40), open_size("w", 40), open_size("pixels", 1600)
    rows, columns = (h + 7) // 8, (w + 7) // 8
    whole = rows * columns + (rows + 1) * 3
    assert rewrite(4 * whole, whole, pixels) == 4 * pixels
    assert rewrite(whole * whole + 1, whole, pixels) == pixels * pixels + 1
    assert symbols(rewrite(rows * columns, whole, pixels)) != symbols(pixels)  # the twin: rows are unknown
    samples = h + smallest(h, 120) + 112  # and within divisions and extremes
    assert rewrite((samples - 512) // 160 + 1, samples, pixels) == (pixels - 512) // 160 + 1
    assert rewrite(largest(samples, w), samples, pixels) == largest(pixels, w)


def test_a_length_that_lies_within_itself_is_rewritten_outside_of_quotients() -> None:
    # what a third leaves: h is n + h // 3, and in h // 3 it would be that again, without an end
    h, n = open_size("h", 40), open_size("n", 20)
    left = h - h // 3
    assert rewrite(left, left, n) == n
    assert rewrite(2 * h, left, n) == 2 * n + 2 * (h // 3)
    assert rewrite(h // 5, left, n) == h // 5


@pytest.mark.slow
def test_a_size_of_many_extremes_is_bounded_by_a_few() -> None:
    # both cases of all of them would be 2^40
    sizes = [open_size(f"s{i}", 20) for i in range(40)]
    low, high = bounds(sum(largest(size, 64) for size in sizes))
    assert 40 <= low <= 40 * 64
    assert high == math.inf


@pytest.mark.parametrize("seed", range(60))
def test_halves_of_halves_are_what_they_are(seed: int) -> None:
    """Sums of many quotients, one in the other, where halves are joined and wholes are split."""
    rng = random.Random(seed)
    values = {as_symbol(H): rng.randint(1, 40), as_symbol(W): rng.randint(1, 40)}

    def drawn(depth: int) -> tuple[int, int]:
        if not depth:
            size = rng.choice([H, H, W, rng.randint(-3, 9)])
            return size, bind(size, values)  # type: ignore[arg-type]
        (a, x), (b, y) = drawn(depth - 1), drawn(depth - 1)
        n = rng.choice([2, 2, 3, 4, 7, 8])
        return rng.choice(
            [(a + b, x + y), (a - b, x - y), (a // n, x // n), (a % n, x % n), ((a + b) // 2, (x + y) // 2)]
        )

    size, number = drawn(6)
    assert bind(size, values) == number  # type: ignore[arg-type]
    low, high = bounds(size)
    assert low <= number <= high
    functions = {"quotient": operator.floordiv, "max": max, "min": min}
    assert write(size, lambda symbol: bind(symbol, values), functions) == number  # type: ignore[arg-type]
