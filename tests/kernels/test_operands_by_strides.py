"""Attention and products of computed operands against the float64 reference, however operands lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from building import Builder, views_of_product
from convoy import backend
from convoy.backend import LoadedRegion
from convoy.errors import GraphError
from convoy.graph import Graph
from convoy.graph.ops import Attention, MatMul, Product, Rotate
from convoy.graph.reference import run
from convoy.graph.views import View, broadcast_view, view_whole
from convoy.kernels.attention import Attend
from convoy.kernels.planner import make_plan
from convoy.kernels.product import MultiplyStack
from convoy.kernels.strided import stack_views
from convoy.options import Options
from convoy.target import InstructionSet, Target, host
from instruction_sets import HOST_SETS, in_turn, of_bfloat16
from pairs import pairs
from together import Asked

BOUND = 4e-6
"""Error, of the largest output."""
BOUND_OF_BFLOAT16 = 1e-2
"""The same where operands are rounded to 8 bits."""

CASES: dict[str, Callable[[], Graph]] = {}


def case(function: Callable[[], Graph]) -> Callable[[], Graph]:
    CASES[function.__name__] = function
    return function


@case
def heads_of_a_packed_product() -> Graph:
    """q, k and v are columns of one tensor, which a product makes; another one reads the heads."""
    rows, heads, size = 21, 3, 8
    b = Builder([1, rows, 13])
    packed = b.add(MatMul, "x0", b.weight(13, 3 * heads * size), b.weight(3 * heads * size))
    q, k, v = (View((heads, rows, size), (size, 3 * heads * size, 1), i * heads * size) for i in range(3))
    y = View((heads, rows, size), (size, heads * size, 1))
    x = b.add(
        Attention, packed, packed, packed, q=q, k=k, v=v, y=y, scale=0.4, shape=(1, rows, heads * size)
    )
    return b.graph(b.add(MatMul, x, b.weight(heads * size, 13)))


@case
def heads_of_channels() -> Graph:
    """Channels first, as attention in a convolutional network has it: rows are neighbours."""
    heads, size, rows = 2, 5, 19
    b = Builder([1, 3 * heads * size, rows])
    q, k, v = (View((heads, rows, size), (size * rows, 1, rows), i * heads * size * rows) for i in range(3))
    return b.graph(b.add(Attention, *["x0"] * 3, q=q, k=k, v=v, y=View(q.shape, q.strides),
                         shape=(1, heads * size, rows)))  # fmt: skip


@case
def groups_of_heads_with_a_mask() -> Graph:
    """Six heads of queries, two of keys; a mask of each key, and one of each query and key."""
    b = Builder([1, 6, 7, 4], [1, 2, 40, 4], [1, 2, 40, 9], [1, 7, 40])
    q, y = view_whole((2, 3, 7, 4)), view_whole((2, 3, 7, 9))
    k, v = (View((2, 3, 40, n), (40 * n, 0, n, 1)) for n in (4, 9))
    of_keys = b.constant(b.random.standard_normal(40))
    masks = {of_keys: View((2, 3, 7, 40), (0, 0, 0, 1)), "x3": View((2, 3, 7, 40), (0, 0, 40, 1))}
    outputs = [
        b.add(Attention, "x0", "x1", "x2", mask, q=q, k=k, v=v, y=y, mask=view, shape=(1, 6, 7, 9))
        for mask, view in masks.items()
    ]
    return b.graph(*outputs)


@case
def causal_and_longer_than_a_chunk() -> Graph:
    b = Builder([1, 1100, 16])
    view = View((2, 1100, 8), (8, 16, 1))
    return b.graph(b.add(Attention, *["x0"] * 3, q=view, k=view, v=view, y=view, diagonal=0,
                         shape=(1, 1100, 16)))  # fmt: skip


@case
def queries_that_may_see_no_key() -> Graph:
    """A safe softmax gives them zeros: of a mask, and of a diagonal below the first key."""
    b = Builder([1, 9, 12], [1, 600, 12])
    q, k = view_whole((1, 9, 12)), view_whole((1, 600, 12))
    added = np.where(np.arange(9)[:, None] % 3 == 1, -np.inf, b.random.standard_normal((9, 600)))
    mask = {"mask": view_whole((1, 9, 600)), "safe": True}
    return b.graph(
        b.add(Attention, "x0", "x1", "x1", b.constant(added), q=q, k=k, v=k, y=q, shape=(1, 9, 12), **mask),
        b.add(Attention, "x0", "x1", "x1", q=q, k=k, v=k, y=q, diagonal=-4, safe=True, shape=(1, 9, 12)),
    )


@case
def one_query_and_one_key() -> Graph:
    b = Builder([1, 33, 8], [1, 1, 8])
    one, many = view_whole((1, 1, 8)), view_whole((1, 33, 8))
    return b.graph(
        b.add(Attention, "x1", "x0", "x0", q=one, k=many, v=many, y=one, shape=(1, 1, 8)),
        b.add(Attention, "x0", "x1", "x1", q=many, k=one, v=one, y=many, shape=(1, 33, 8)),
    )


@case
def windows_in_four_axes() -> Graph:
    """Windows of 2 x 3 rows of pixels, in heads: the stack is no fewer axes in any order."""
    b = Builder([1, 4, 5, 6, 8])
    view = View((4, 6, 2, 5, 4), (240, 8, 4, 48, 1))
    return b.graph(b.add(Attention, *["x0"] * 3, q=view, k=view, v=view, y=view, shape=(1, 4, 5, 6, 8)))


@case
def products_as_numpy_broadcasts() -> Graph:
    b = Builder([1, 3, 17, 20], [1, 1, 20, 35], [1, 3, 35, 20])
    outputs = []
    for right in ("x1", "x2"):
        shapes = [b.tensors[name].shape for name in ("x0", right)]
        if right == "x2":  # its matrices transposed
            x, _, y = views_of_product(shapes[0], (*shapes[1][:-2], 20, 35))
            w = View((1, 3, 20, 35), (0, 700, 1, 20))
        else:
            x, w, y = views_of_product(*shapes)
        outputs.append(b.add(Product, "x0", right, a=x, b=w, y=y, scale=0.3, shape=y.shape))
    return b.graph(*outputs)


@case
def products_with_a_constant_and_deep_ones() -> Graph:
    b = Builder([1, 2, 9, 1030])
    w = b.weight(2, 1030, 5)
    x, m, y = views_of_product((1, 2, 9, 1030), (2, 1030, 5))
    turned = View(y.shape, (0, 45, 1, 9))
    return b.graph(
        b.add(Product, "x0", w, a=x, b=m, y=y, shape=(1, 2, 9, 5)),
        b.add(Product, "x0", w, a=x, b=m, y=turned, shape=(1, 2, 5, 9)),
    )


@case
def rotations_of_packed_heads() -> Graph:
    """Halves of heads of a packed tensor, and neighbours; angles alike for heads, or for both of a pair."""
    rows, heads, pairs = 7, 3, 20
    width = 3 * heads * 2 * pairs
    b = Builder([1, rows, width], [1, rows, 2 * pairs])
    shape = (heads, rows, 2, pairs)
    packed = View(shape, (2 * pairs, width, pairs, 1), heads * 2 * pairs)
    angles = View(shape, (0, 2 * pairs, pairs, 1))
    turns = View(shape, (2 * pairs, width, 1, 2))
    same = View(shape, (0, pairs, 0, 1))
    y = view_whole(shape)
    beside = View(shape, (2 * pairs, heads * 2 * pairs, 1, 2))
    return b.graph(
        b.add(Rotate, "x0", "x1", b.weight(rows, 2 * pairs), x=packed, cos=angles, sin=angles, y=y,
              shape=(1, heads, rows, 2 * pairs)),
        b.add(Rotate, "x0", b.weight(rows, pairs), b.weight(rows, pairs), x=turns, cos=same, sin=same,
              y=beside, shape=(1, rows, heads, 2 * pairs)),
    )  # fmt: skip


def asked(name: str, isa: InstructionSet) -> list[Asked]:
    threads = (1, 3) if isa == host().isa else (2,)
    return [Asked(CASES[name](), Target(isa), Options(threads=count)) for count in threads]


def asked_of_bfloat16(name: str, isa: InstructionSet) -> list[Asked]:
    return [Asked(CASES[name](), of_bfloat16(isa), Options(threads=2))]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize(("name", "isa"), in_turn(CASES, everywhere=["rotations_of_packed_heads"]))
def test_a_region_of_views_agrees_with_the_reference(
    name: str, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    for region, one in zip(regions, asked(name, isa), strict=True):
        agree(one.graph, region, one.options.threads, BOUND)


@pytest.mark.together(of=asked_of_bfloat16)
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize("name", CASES)
def test_a_region_of_views_of_bfloat16_agrees_with_the_reference(
    name: str, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    agree(CASES[name](), regions[0], 2, BOUND_OF_BFLOAT16)


def agree(graph: Graph, region: LoadedRegion, threads: int | None, bound: float) -> None:
    random = np.random.default_rng(7)
    arrays = [random.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs]
    region(*[a * 100 for a in arrays])  # the arena is dirty the second time
    for got, want in zip(region(*arrays), run(graph, arrays, np.float64), strict=True):
        assert got.shape == want.shape
        assert float(np.abs(got - want).max() / np.abs(want).max()) <= bound, f"{threads} threads"


def test_a_single_row_is_read_as_it_lies_and_others_multiply_bfloat16() -> None:
    steps = make_plan(CASES["one_query_and_one_key"](), of_bfloat16(host().isa)).steps
    assert [(step.y_view.shape[-2], step.precision) for step in steps if isinstance(step, Attend)] == [
        (1, "float32"),
        (33, "bf16"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "value", "bfloat16"),
    pairs(
        ["query", "key", "value", "mask", "hidden from all", "hidden from one"],
        [np.nan, np.inf, -np.inf],
        [False, True],
    ),
)
def test_what_is_not_finite_stays_where_the_reference_has_it(
    place: str, value: float, bfloat16: bool
) -> None:
    rows, keys, size = 20, 600, 8  # more keys than are packed at a time
    b = Builder([1, rows, size], [1, keys, size], [1, keys, size], [1, rows, keys])
    q, k, v = view_whole((1, rows, size)), view_whole((1, keys, size)), view_whole((1, keys, size))
    causal = {"diagonal": 5} if place == "value" else {}
    graph = b.graph(b.add(Attention, "x0", "x1", "x2", "x3", q=q, k=k, v=v, y=q,
                          mask=view_whole((1, rows, keys)), shape=(1, rows, size), **causal))  # fmt: skip
    arrays = b.arrays()
    where: dict[str, tuple[int, Any]] = {
        "query": (0, (0, 7, 3)), "key": (1, (0, 9, 2)), "value": (2, (0, 500, 4)), "mask": (3, (0, 3, 550)),
        "hidden from all": (3, (0, slice(None), slice(0, 560))), "hidden from one": (3, (0, 4)),
    }  # fmt: skip
    number, index = where[place]
    arrays[number][index] = value
    (expected,) = run(graph, arrays, np.float64)
    target, bound = (of_bfloat16(host().isa), BOUND_OF_BFLOAT16) if bfloat16 else (host(), BOUND)
    (found,) = backend.load(graph, target, Options(threads=2))(*arrays)
    finite = np.isfinite(expected)
    assert (np.isfinite(found) == finite).all()
    assert (np.isnan(found) == np.isnan(expected)).all()
    largest = np.abs(expected[finite]).max(initial=1.0)
    assert float(np.abs(found - expected)[finite].max(initial=0.0)) <= bound * largest


def test_axes_that_are_one_in_all_views_are_merged() -> None:
    node = Attention(inputs=("x",) * 3, output="y", q=view_whole((2, 3, 4)), k=view_whole((2, 3, 4)),
                     v=view_whole((2, 3, 4)), y=view_whole((2, 3, 4)))  # fmt: skip
    whole = view_whole((2, 1, 3, 5, 6))
    assert stack_views(node, {"x": whole})["x"].shape == (1, 1, 1, 6, 5, 6)
    broadcast = broadcast_view(view_whole((3, 5, 6)), (2, 1, 3, 5, 6))
    found = stack_views(node, {"w": broadcast, "x": whole})
    assert found["x"].shape == found["w"].shape == (1, 1, 2, 3, 5, 6)
    assert found["w"].strides == (0, 0, 0, 30, 6, 1)


def test_a_stack_of_too_many_axes_is_refused() -> None:
    lengths = (2, 2, 2, 2, 2)
    x = View((*lengths, 1, 1), (1, 4, 16, 64, 256, 1, 1))
    node = Product(inputs=("x0", "x0"), output="y", a=x, b=x, y=view_whole((*lengths, 1, 1)))
    with pytest.raises(GraphError, match="expected at most 4 axes of matrices, got"):
        stack_views(node, {"x": x, "w": x, "y": node.y})


def test_a_larger_product_takes_longer() -> None:
    """By what is computed, not by what is moved: a region's threads are chosen by it."""
    target = Target("avx512")
    cycles = []
    for n in (64, 640):
        view = view_whole((4, n, 32))
        b = Builder([1, 4, n, 32])
        attention = b.add(Attention, *["x0"] * 3, q=view, k=view, v=view, y=view, shape=(1, 4, n, 32))
        plan = make_plan(b.graph(attention), target)
        assert isinstance(plan.steps[0], Attend)
        cycles.append(plan.work)
    assert cycles[1] > 50 * cycles[0] > 0
    b = Builder([1, 400, 400])
    x, w, y = views_of_product((1, 400, 400), (1, 400, 400))
    plan = make_plan(b.graph(b.add(Product, "x0", "x0", a=x, b=w, y=y, shape=(1, 400, 400))), target)
    assert isinstance(plan.steps[0], MultiplyStack)
    assert plan.work > 400**3 / target.lanes / target.fma_units
