"""Transposes and reshapes between products and convolutions are part of packing and unpacking."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from building import Builder
from convoy.backend import LoadedRegion
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, MatMul, Reshape, Transpose, Unary
from convoy.graph.reference import run
from convoy.graph.sizes import open_size
from convoy.graph.views import View, permuted, view_whole
from convoy.kernels.copy import CopyRows
from convoy.kernels.layout import Pack, Unpack
from convoy.kernels.moved import reshaped, unpack_strides
from convoy.kernels.planner import make_plan
from convoy.kernels.transpose import TransposeArray
from convoy.options import Options
from convoy.plan.maps import make_map
from convoy.target import Target, host
from together import Asked

C, H, W = 68, 9, 14
"""Channels that end within a block, rows and columns."""


def conv(b: Builder, x: str, channels: int = C, size: int = 3) -> str:
    """One whose channels are not planes: in blocks."""
    given = b.tensors[x].shape[1]
    weight = b.weight(channels, given, size, size)
    return b.add(Conv2d, x, weight, padding=(size // 2, size // 2, size // 2, size // 2))


def from_rows(b: Builder) -> str:
    """Rows of pixels, [1, H·W, C], multiplied; then as a map."""
    x = b.add(MatMul, "x0", b.weight(C, C))
    x = b.add(Transpose, x, perm=(0, 2, 1))
    return conv(b, b.add(Reshape, x, shape=(1, C, H, W)))


def to_rows(b: Builder, x: str) -> str:
    """A map as rows of pixels, multiplied."""
    x = b.add(Reshape, x, shape=(1, C, H * W))
    return b.add(MatMul, b.add(Transpose, x, perm=(0, 2, 1)), b.weight(C, 7))


def kinds(graph: Graph) -> list[str]:
    plan = make_plan(graph, host(), Options(accuracy="direct"))
    names = {Pack: "pack", Unpack: "unpack", TransposeArray: "transpose", CopyRows: "copy"}
    return [names[type(step)] for step in plan.steps if type(step) in names]


def is_right(b: Builder, graph: Graph, region: LoadedRegion, images: int = 1) -> None:
    arrays = b.arrays(images)
    for got, want in zip(region(*arrays), run(graph, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def both_ways(b: Builder) -> tuple[str, ...]:
    return (to_rows(b, conv(b, from_rows(b))),)


def read_twice(b: Builder) -> tuple[str, ...]:
    """What is transposed is read as rows and as a map."""
    rows = b.add(MatMul, "x0", b.weight(C, C))
    x = b.add(Transpose, rows, perm=(0, 2, 1))
    return conv(b, b.add(Reshape, x, shape=(1, C, H, W))), b.add(MatMul, x, b.weight(H * W, 3))


def of_a_map_twice(b: Builder) -> tuple[str, ...]:
    x = from_rows(b)
    return to_rows(b, x), b.add(Unary, b.add(Reshape, x, shape=(1, C * H, W)), kind="tanh"), conv(b, x)


def outputs(b: Builder) -> tuple[str, ...]:
    x = from_rows(b)
    flat = b.add(Reshape, x, shape=(1, C, H * W))
    return b.add(Transpose, flat, perm=(0, 2, 1)), flat, x


def heads(b: Builder) -> tuple[str, ...]:
    """Channels that become two axes stand at no one stride."""
    x = b.add(Reshape, from_rows(b), shape=(1, 4, C // 4, H * W))
    return (b.add(MatMul, b.add(Transpose, x, perm=(0, 2, 3, 1)), b.weight(4, 3)),)


def number_by_number(b: Builder) -> tuple[str, ...]:
    """Rows of a map that become its columns: neither these nor channels stand side by side."""
    x = b.add(Reshape, b.add(MatMul, "x0", b.weight(C, C)), shape=(1, H, C, W))
    return (conv(b, b.add(Transpose, x, perm=(0, 2, 3, 1))),)


def unshuffled(b: Builder) -> tuple[str, ...]:
    """The pixels of each square beside each other, as channels; and what was made before read once more."""
    x = b.add(Reshape, b.add(Unary, "x0", kind="tanh"), shape=(1, H, W // 2, 2, C))
    x = b.add(Transpose, x, perm=(0, 1, 3, 2, 4))
    y = b.add(Reshape, b.add(Reshape, x, shape=(1, H * W, C)), shape=(1, H * W * C))
    return y, b.add(Unary, x, kind="sqrt")


def product_in_another_shape(b: Builder) -> tuple[str, ...]:
    y = b.add(MatMul, "x0", b.weight(C, 7))
    return b.add(Reshape, y, shape=(1, H, W, 7)), b.add(Reshape, y, shape=(1, 7 * H * W))


CASES: dict[str, tuple[Callable[[Builder], tuple[str, ...]], list[str]]] = {
    "both ways": (both_ways, ["pack", "unpack"]),
    "read twice": (read_twice, ["pack", "transpose", "unpack"]),
    "of a map twice": (of_a_map_twice, ["pack", "unpack", "unpack", "unpack"]),
    "outputs": (outputs, ["pack", "unpack", "transpose", "unpack"]),
    "heads": (heads, ["pack", "unpack", "transpose"]),
    "number by number": (number_by_number, ["transpose", "pack", "unpack"]),
    "unshuffled": (unshuffled, ["transpose"]),
    "product in another shape": (product_in_another_shape, ["copy"]),  # the second of two
}


def moving(name: str, batch: int | None = 1) -> tuple[Builder, Graph]:
    b = Builder([1, H * W, C], batch=batch)
    return b, b.graph(*CASES[name][0](b))


def asked(name: str) -> list[Asked]:
    graph, targets = moving(name)[1], (host(), Target("portable"))
    return [*(Asked(graph, target) for target in targets), Asked(moving(name, None)[1], host())]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("name", CASES)
def test_what_moves_is_made_as_it_is_read(name: str, regions: list[LoadedRegion]) -> None:
    b, graph = moving(name)
    here, portable, of_many = regions
    assert kinds(graph) == CASES[name][1]
    is_right(b, graph, here)
    is_right(b, graph, portable)
    is_right(*moving(name, None), of_many, images=3)


def in_orders(perm: tuple[int, ...], shape: tuple[int, ...]) -> tuple[Builder, Graph]:
    """A convolution reads an input in another order, and its map leaves in a third one."""
    b = Builder([1, *shape])
    x = b.add(Transpose, "x0", perm=(0, *perm))
    y = conv(b, b.add(Unary, x, kind="tanh"), 19)
    return b, b.graph(b.add(Transpose, y, perm=(0, *perm)))


def asked_in_orders(perm: tuple[int, ...], shape: tuple[int, ...]) -> list[Asked]:
    return [Asked(in_orders(perm, shape)[1], host())]


@pytest.mark.together(of=asked_in_orders)
@pytest.mark.parametrize("perm", list(permutations((1, 2, 3))))
@pytest.mark.parametrize("shape", [(1, 9, 1), (3, 1, 17), (18, 2, 5), (1, 1, 33), (16, 4, 4)])
def test_every_order_of_a_map(
    perm: tuple[int, ...], shape: tuple[int, ...], regions: list[LoadedRegion]
) -> None:
    is_right(*in_orders(perm, shape), regions[0])


def test_views_of_views() -> None:
    rows = permuted(view_whole((1, H * W, C)), (0, 2, 1))
    assert reshaped(rows, (1, C, H, W)) == View((1, C, H, W), (0, 1, W * C, C))
    assert reshaped(rows, (1, C * H, W)) is None  # its first axis has no single stride
    n = open_size("n", 4)
    assert reshaped(permuted(view_whole((1, n * W, C)), (0, 2, 1)), (1, C, n, W)) == View(
        (1, C, n, W), (0, 1, W * C, C)
    )


@pytest.mark.parametrize(
    ("view", "strides"),
    [
        (View((1, H * W, C), (0, 1, H * W)), (1, W * C, C)),
        (View((1, H, W, C), (0, W, 1, H * W)), (1, W * C, C)),
        (View((1, C, H, W), (0, H * W, W, 1)), (H * W, W, 1)),
        (View((1, W, H, C), (0, 1, W, H * W)), (1, C, H * C)),
        (View((1, H, C, W), (0, W, H * W, 1)), (W, C * W, 1)),
        (View((1, W, C, H), (0, 1, H * W, W)), None),  # neither channels nor pixels side by side
        (View((1, 4, H * W, C // 4), (0, C // 4 * H * W, 1, H * W)), None),
        (View((1, C, W), (0, H * W, 1)), None),  # a part
        (View((1, C, H, W, 2), (0, H * W, W, 1, 0)), None),  # each twice
    ],
)
def test_where_a_map_is_unpacked_to(view: View, strides: tuple[int, ...] | None) -> None:
    assert unpack_strides(view, make_map(0, C, H, W, 16)) == strides
