"""Regions whose sizes are known at the call, at many of them, beside the reference."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.backend import LoadedRegion
from convoy.errors import ConvoyError
from convoy.graph import Graph
from convoy.graph.least import settle_least
from convoy.graph.ops import (
    Binary,
    Concat,
    Conv2d,
    ConvTranspose2d,
    GroupNorm,
    LayerNorm,
    MatMul,
    Pad,
    Pool2d,
    Reduce,
    Reshape,
    Resize,
    Slice,
    Softmax,
    Transpose,
    Unary,
)
from convoy.graph.reference import run
from convoy.graph.sizes import open_size
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import InstructionSet, Target
from instruction_sets import HOST_SETS, in_turn
from pairs import pairs
from together import Asked

BOUND = 1e-5
PORTABLE = Target("portable")


def open_image(
    channels: int,
    batch: int | None = 1,
    least: int = 1,
    known: tuple[int | None, int | None] = (None, None),
) -> Builder:
    """``known``: its height and width, where not a call gives them."""
    names = iter(("size[0]", "size[1]"))
    sides = [side or open_size(next(names), 24, least) for side in known]
    return Builder([1, channels, *sides], batch=batch)


def classifier(batch: int | None = 1) -> Graph:
    """A first layer, a pool, a residual block, what has one pixel, and rows of products."""
    b = open_image(3, batch)
    x = b.add(Conv2d, "x0", b.weight(16, 3, 5, 5), b.weight(16), stride=(2, 2), padding=(2, 2, 2, 2))
    x = b.add(
        Pool2d, b.add(Unary, x, kind="relu"), kind="max", kernel=(3, 3), stride=(2, 2), padding=(1,) * 4
    )
    y = b.add(Unary, b.add(Conv2d, x, b.weight(16, 16, 3, 3), padding=(1, 1, 1, 1)), kind="relu")
    y = b.add(Conv2d, y, b.weight(16, 16, 1, 1), b.weight(16))
    x = b.add(Unary, b.add(Binary, x, y, kind="add"), kind="relu")
    y = b.add(Reduce, x, kind="mean", axes=(2, 3), keepdims=False)
    return b.graph(b.add(MatMul, y, b.weight(16, 10), b.weight(10)), x)


def branches() -> Graph:
    """Depthwise, dilated, grouped and strided convolutions side by side, computed into their place."""
    b = open_image(8)
    parts = [
        b.add(Conv2d, "x0", b.weight(8, 1, 3, 3), groups=8, padding=(1, 1, 1, 1)),
        b.add(Conv2d, "x0", b.weight(8, 8, 3, 3), dilation=(2, 2), padding=(2, 2, 2, 2)),
        b.add(Conv2d, "x0", b.weight(6, 4, 3, 3), groups=2, padding=(1, 1, 1, 1)),
        b.add(Pool2d, "x0", kind="avg", kernel=(3, 3), padding=(1, 1, 1, 1)),
    ]
    x = b.add(Concat, *parts, axis=1)
    y = b.add(Conv2d, x, b.weight(12, 30, 3, 3), stride=(2, 2), padding=(1, 1, 1, 1))
    return b.graph(x, b.add(Unary, y, kind="silu"))


def rows() -> Graph:
    """A sequence: products on rows, a softmax, elementwise chains that broadcast."""
    b = Builder([1, open_size("size[0]", 16), 12])
    x = b.add(Unary, b.add(MatMul, "x0", b.weight(12, 20), b.weight(20)), kind="gelu")
    x = b.add(Binary, x, b.weight(20), kind="mul")
    x = b.add(Softmax, x, axis=2)
    y = b.add(Reduce, x, kind="max", axes=(1,))
    return b.graph(b.add(Binary, x, y, kind="sub"), b.add(Softmax, x, axis=1))


def flat() -> Graph:
    """Pixels as one row of a reshape."""
    b = open_image(6)
    h, w = b.tensors["x0"].shape[2:]
    x = b.add(Conv2d, "x0", b.weight(9, 6, 1, 1), b.weight(9))
    x = b.add(Reshape, x, shape=(1, 9, h * w))
    return b.graph(b.add(Unary, x, kind="sigmoid"))


GRAPHS = (classifier, branches, rows, flat)
SIZES = ((24, 24), (1, 1), (2, 3), (13, 7), (40, 31), (5, 64))


def check(graph: Graph, region: LoadedRegion, sizes: tuple[int, ...], images: int = 1) -> None:
    bound = graph.bound({at.symbol: n for at, n in zip(graph.open_axes, sizes, strict=False)})
    arrays = Builder(*(bound.shape(name) for name in graph.inputs), seed=sum(sizes)).arrays(images)
    for got, want in zip(region(*arrays), run(bound, arrays, np.float64), strict=True):
        assert got.shape == want.shape
        assert np.abs(got - want).max(initial=0) <= BOUND * np.abs(want).max(initial=0), sizes


def asked(make: Callable[[], Graph], threads: int = 2, isa: InstructionSet = "portable") -> list[Asked]:
    return [Asked(settle_least(make()), Target(isa), Options(threads=threads))]


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize("make", GRAPHS)
def test_one_region_runs_every_size(make: Callable[[], Graph], regions: list[LoadedRegion]) -> None:
    graph = settle_least(make())
    for sizes in SIZES:
        check(graph, regions[0], sizes)


def crossed_phases() -> Graph:
    """9 h w - 9 h - 6 w + 6 products are more than none or not, as a call tells."""
    b = open_image(3)
    given = {"stride": (2, 2), "padding": (1, 3, 1, 1), "dilation": (1, 2)}
    return b.graph(b.add(ConvTranspose2d, "x0", b.weight(3, 3, 3, 3), b.weight(3), **given))


@pytest.mark.together(of=lambda: asked(crossed_phases))
def test_phases_of_a_transposed_convolution_whose_sizes_no_order_has(regions: list[LoadedRegion]) -> None:
    graph = settle_least(crossed_phases())
    for sizes in SIZES[2:]:
        check(graph, regions[0], sizes)


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize(("make", "threads", "isa"), pairs(GRAPHS, [1, 3], HOST_SETS))
def test_with_every_instruction_set(
    make: Callable[[], Graph], threads: int, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    graph = settle_least(make())
    draw = np.random.default_rng(7)
    for _ in range(12):
        check(graph, regions[0], tuple(int(n) for n in draw.integers(1, 70, 2)))


@pytest.mark.together(of=lambda: asked(lambda: classifier(batch=None)))
def test_the_batch_is_the_calls_too(regions: list[LoadedRegion]) -> None:
    graph = settle_least(classifier(batch=None))
    for images in (1, 2, 5):
        check(graph, regions[0], (9, 18), images)


def test_a_size_below_the_least_is_an_error() -> None:
    b = Builder([1, 3, open_size("size[0]", 24, 64), open_size("size[1]", 24, 64)])
    graph = b.graph(b.add(Conv2d, "x0", b.weight(4, 3, 5, 5)))
    for at in graph.open_axes:
        at.symbol.least = 1
    graph = settle_least(graph)
    region = backend.load(graph, PORTABLE)
    check(graph, region, (5, 5))
    with pytest.raises(ConvoyError, match="at least 5 along axis 2"):
        region(np.zeros((1, 3, 4, 9), np.float32))


def cached(
    axis: int, *, first: bool, blocked: bool = False, read_alone: bool = False, again: bool = False
) -> Graph:
    """Old rows and new ones side by side; ``again``: the old ones were put together before.

    With ``read_alone``, a norm of the old ones too.
    """
    past, new = open_size("size[0]", 24), open_size("size[1]", 8)
    shapes = [[1, 6, 8, 4] if blocked else [1, 6, 8] for _ in range(2)]
    shapes[0][axis], shapes[1][axis] = past, new
    b = Builder(*shapes, batch=1)
    ours = b.add(Conv2d, "x1", b.weight(6, 6, 1, 1)) if blocked else b.add(Unary, "x1", kind="relu")
    old = b.add(Concat, "x0", axis=axis) if again else "x0"
    x = b.add(Concat, *((old, ours) if first else (ours, old)), axis=axis)
    y = b.add(Unary, x, kind="sigmoid")
    if blocked:
        y = b.add(Conv2d, x, b.weight(5, 6, 3, 3), padding=(1, 1, 1, 1))
    return b.graph(x, y, *([b.add(Softmax, "x0", axis=axis)] if read_alone else []))


CACHED = [(1, False, False), (2, False, False), (2, False, True), (2, True, False), (3, True, True)]
"""Axes, and what else ``cached`` is given."""


def asked_cached(form: tuple[int, bool, bool], first: bool, threads: int) -> list[Asked]:
    axis, blocked, again = form
    return asked(lambda: cached(axis, first=first, blocked=blocked, again=again), threads)


@pytest.mark.together(of=asked_cached)
@pytest.mark.parametrize(("form", "first", "threads"), pairs(CACHED, [True, False], [1, 2]))
def test_nothing_may_be_put_beside_something(
    form: tuple[int, bool, bool], first: bool, threads: int, regions: list[LoadedRegion]
) -> None:
    axis, blocked, again = form
    graph = settle_least(cached(axis, first=first, blocked=blocked, again=again))
    assert [at.symbol.least for at in graph.open_axes] == [0, 1 if blocked else 0]
    for sizes in ((0, 1), (0, 9), (1, 1), (7, 2), (30, 1), *(() if blocked else ((3, 0), (0, 0)))):
        check(graph, regions[0], sizes)


def test_what_a_convolution_reads_alone_has_elements() -> None:
    graph = settle_least(cached(2, first=True, blocked=True, read_alone=True))
    assert [at.symbol.least for at in graph.open_axes] == [0, 1]
    with pytest.raises(ConvoyError, match="at least 1 along axis 2"):
        backend.load(graph, PORTABLE)(*(np.zeros((1, 6, n, 4), np.float32) for n in (3, 0)))


def test_each_of_two_may_be_empty() -> None:
    b = Builder([1, open_size("size[0]", 24), 8], [1, open_size("size[1]", 8), 8])
    graph = settle_least(b.graph(b.add(Concat, "x0", "x1", axis=1)))
    assert [at.symbol.least for at in graph.open_axes] == [0, 0]


def test_likely_sizes_are_in_no_step() -> None:
    # were one written as a number, 1009 would be in the C, or what is computed of it
    b = Builder([1, 8, open_size("size[0]", 1009), open_size("size[1]", 1013)])
    x = b.add(Conv2d, "x0", b.weight(8, 8, 3, 3), padding=(1, 1, 1, 1))
    graph = b.graph(b.add(Unary, b.add(Conv2d, x, b.weight(8, 8, 1, 1)), kind="relu"))
    source = backend.generate(graph, "region", PORTABLE).sources[0]
    steps = source[source.index("static void step_0") : source.index("static void run(")]
    assert "size[0]" in steps
    assert not {1009, 1011, 1013, 1015, 1009 * 1013} & set(map(int, re.findall(r"\b\d+\b", steps)))


def test_memory_that_lives_at_one_time_lies_apart_at_every_size() -> None:
    graph = settle_least(classifier())
    plan = make_plan(graph, PORTABLE)
    below: list[set[int]] = []
    for slot in plan.slots:
        below.append(set(slot.behind) | {k for j in slot.behind for k in below[j]})
    number = {b.index: i for i, b in enumerate(plan.buffers) if b.space == "arena"}
    lives: dict[int, list[int]] = {}
    for i, step in enumerate(plan.steps):
        for operand in (*step.reads, *step.writes):
            lives.setdefault(operand.buffer, []).append(i)
    places = list(number)
    for i, a in enumerate(places):
        for j, b in enumerate(places[:i]):
            first, second = lives[number[a]], lives[number[b]]
            if first[0] <= second[-1] and second[0] <= first[-1]:
                slots = int(re.findall(r"\d+", repr(a))[0]), int(re.findall(r"\d+", repr(b))[0])
                assert min(slots) in below[max(slots)], (i, j)


def winograd(known: tuple[int | None, int | None] = (None, None)) -> Graph:
    """Convolutions that Winograd's algorithm computes: portions of tiles, chunks of weights, a residual."""
    b = open_image(64, known=known)
    x = b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), b.weight(64), padding=(1, 1, 1, 1))
    y = b.add(Conv2d, b.add(Unary, x, kind="relu"), b.weight(96, 64, 3, 3), padding=(1, 2, 1, 0))
    z = b.add(Conv2d, x, b.weight(64, 64, 3, 3), b.weight(64), padding=(1, 1, 1, 1))
    return b.graph(y, b.add(Unary, b.add(Binary, z, x, kind="add"), kind="relu"))


def asked_winograd(l2_bytes: int, threads: int) -> list[Asked]:
    target = replace(PORTABLE, l2_bytes=l2_bytes)
    return [Asked(settle_least(winograd()), target, Options(threads=threads))]


@pytest.mark.together(of=asked_winograd)
@pytest.mark.parametrize("threads", [1, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("l2_bytes", [512 << 10, pytest.param(2 << 20, marks=pytest.mark.slow)])
def test_winograd_tiles_are_counted_at_the_call(
    l2_bytes: int, threads: int, regions: list[LoadedRegion]
) -> None:
    graph = settle_least(winograd())
    target = replace(PORTABLE, l2_bytes=l2_bytes)
    plan = make_plan(graph, target, Options(threads=threads))
    assert any("winograd" in step.algorithm for step in plan.steps)
    for sizes in ((24, 24), (2, 2), (2, 3), (7, 13), (14, 9), (11, 41), (36, 6), (50, 60)):
        check(graph, regions[0], sizes)


def streamed() -> Graph:
    b = open_image(128)
    y = b.add(Conv2d, "x0", b.weight(128, 128, 3, 3), b.weight(128), padding=(1, 1, 1, 1))
    return settle_least(b.graph(b.add(Unary, b.add(Binary, y, "x0", kind="add"), kind="relu")))


def asked_streamed(isa: InstructionSet, threads: int) -> list[Asked]:
    return [Asked(streamed(), replace(Target(isa), l2_bytes=512 << 10), Options(threads=threads))]


@pytest.mark.together(of=asked_streamed)
@pytest.mark.parametrize(("threads", "isa"), in_turn([1, 2]))
def test_two_rows_and_columns_of_tiles_are_streamed(
    isa: InstructionSet, threads: int, regions: list[LoadedRegion]
) -> None:
    graph, (region,) = streamed(), regions
    (source,) = region.code.sources
    assert "CV_WINOGRAD_STREAMED_BLOCKS(" in source
    for sizes in ((5, 5), (6, 8), (7, 7), (8, 5), (8, 8), (4, 8), (9, 7)):
        check(graph, region, sizes)
    x = np.random.default_rng(7).normal(size=(1, 128, 7, 6)).astype(np.float32)
    x[0, 3, 6, 5], x[0, 40, 0, 0] = np.inf, np.nan
    bound = graph.bound({at.symbol: n for at, n in zip(graph.open_axes, (7, 6), strict=True)})
    (want,), (got,) = run(bound, [x]), region(x)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))


def test_tiles_of_few_channels_are_not() -> None:
    b = open_image(64)
    y = b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), padding=(1, 1, 1, 1))
    region = backend.load(settle_least(b.graph(y)), replace(PORTABLE, l2_bytes=2 << 20), Options(threads=1))
    assert "STREAMED" not in region.code.sources[0]


@pytest.mark.together(of=lambda known: asked(lambda: winograd(known)))
@pytest.mark.parametrize("known", [(9, None), (None, 9)], ids=["height", "width"])
def test_few_pixels_are_computed_by_definition_where_one_side_is_known(
    known: tuple[int | None, int | None], regions: list[LoadedRegion]
) -> None:
    # with a known width rows were cut into no tiles: the output was not written
    graph, (region,) = settle_least(winograd(known)), regions
    few = re.search(r"y.height \* y.width <= (\d+)", region.code.sources[0])
    assert few
    assert int(few[1]) >= 4 * 9
    for side in (2, 3, 4, 7, 24, 40):
        check(graph, region, (side,))


def moved() -> Graph:
    """Resizes, a transposed convolution, pads, slices, transposes and norms."""
    b = open_image(8)
    h, w = b.tensors["x0"].shape[2:]
    x = b.add(Conv2d, "x0", b.weight(16, 8, 3, 3), padding=(1, 1, 1, 1))
    up = b.add(Resize, x, shape=(1, 16, 2 * h, 2 * w), mode="nearest", coordinates="asymmetric")
    back = b.add(Resize, up, shape=(1, 16, h, w), mode="bilinear", coordinates="half_pixel")
    half = b.add(Resize, x, shape=(1, 16, (h + 1) // 2, w), mode="bilinear", coordinates="align_corners")
    deconv = b.add(ConvTranspose2d, x, b.weight(16, 4, 2, 2), b.weight(4), stride=(2, 2))
    overlapping = b.add(
        ConvTranspose2d,
        x,
        b.weight(16, 4, 3, 3),
        stride=(2, 2),
        padding=(1, 1, 1, 1),
        output_padding=(1, 1),
    )
    norm = b.add(GroupNorm, back, b.weight(16), b.weight(16), groups=4, epsilon=1e-5)
    part = b.add(Slice, b.add(Binary, norm, x, kind="add"), axis=1, begin=3, end=13, step=2)
    padded = b.add(Pad, part, widths=((0, 0), (1, 0), (2, 3), (0, 1)), value=0.5)
    turned = b.add(Transpose, padded, perm=(0, 2, 3, 1))
    turned = b.add(LayerNorm, turned, b.weight(6), axis=3, epsilon=1e-5)
    return b.graph(half, b.add(Concat, deconv, overlapping, axis=1), turned)


@pytest.mark.together(of=lambda: asked(moved))
def test_what_moves_pixels_runs_every_size(regions: list[LoadedRegion]) -> None:
    graph = settle_least(moved())
    for sizes in SIZES:
        check(graph, regions[0], sizes)


def resized(mode: str, coordinates: str) -> Graph:
    b = Builder(
        [1, 3, open_size("size[0]", 5), open_size("size[1]", 5)], [1, 1, open_size("size[2]", 5), 7]
    )
    size = b.tensors["x1"].shape[2]
    roundings = (
        ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil") if mode == "nearest" else ("floor",)
    )
    names = [
        b.add(Resize, "x0", shape=(1, 3, size, 7), mode=mode, coordinates=coordinates, rounding=rounding)
        for rounding in roundings
    ]
    return settle_least(b.graph(*names, b.add(Unary, "x1", kind="relu")))


@pytest.mark.together(of=lambda **given: [Asked(resized(**given), PORTABLE)])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"])
def test_pixels_of_a_resize_are_those_of_known_sizes(
    mode: str, coordinates: str, regions: list[LoadedRegion]
) -> None:
    graph = resized(mode, coordinates)
    for sizes in ((5, 5, 5), (1, 9, 4), (7, 1, 1), (4, 11, 13), (9, 8, 3)):
        check(graph, regions[0], sizes)


def first_layer() -> Graph:
    b = open_image(3)
    x = b.add(Conv2d, "x0", b.weight(32, 3, 7, 7), b.weight(32), stride=(2, 2), padding=(3, 3, 3, 3))
    return b.graph(b.add(Unary, x, kind="relu"))


@pytest.mark.together(of=lambda: asked(first_layer))
def test_a_first_layer_is_multiplied_along_rows_of_every_width(regions: list[LoadedRegion]) -> None:
    graph, (region,) = settle_least(first_layer()), regions
    assert "cv_winograd_rows_fit" in region.code.sources[0]
    for sizes in ((24, 24), (1, 1), (3, 2), (9, 15), (6, 17), (40, 33), (31, 70)):
        check(graph, region, sizes)


def chain() -> Graph:
    b = Builder([1, 24, open_size("size[0]", 160), open_size("size[1]", 160)])
    x = b.add(Unary, b.add(Conv2d, "x0", b.weight(96, 24, 1, 1), b.weight(96)), kind="relu")
    x = b.add(
        Conv2d, x, b.weight(96, 1, 3, 3), b.weight(96), groups=96, stride=(2, 2), padding=(1, 1, 1, 1)
    )
    return b.graph(b.add(Conv2d, b.add(Unary, x, kind="relu"), b.weight(24, 96, 1, 1), b.weight(24)))


@pytest.mark.slow
@pytest.mark.together(of=lambda: asked(chain))
def test_chains_run_strip_by_strip_at_every_size(regions: list[LoadedRegion]) -> None:
    graph, (region,) = settle_least(chain()), regions
    assert "cv_run_strips" in region.code.sources[0]
    for sizes in ((160, 160), (1, 1), (2, 5), (7, 3), (33, 200), (90, 17)):
        check(graph, region, sizes)


def pooled() -> Graph:
    b = open_image(64, least=2)
    x = b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), b.weight(64), padding=(1, 1, 1, 1))
    x = b.add(Unary, x, kind="relu")
    graph = b.graph(b.add(Pool2d, x, kind="max", kernel=(2, 2), stride=(2, 2)))
    for at in graph.open_axes:
        at.symbol.least = 1
    return graph


@pytest.mark.together(of=lambda: asked(pooled))
def test_a_pool_is_computed_from_tiles_of_every_size(regions: list[LoadedRegion]) -> None:
    graph, (region,) = settle_least(pooled()), regions
    assert "_pooled" in region.code.sources[0]
    for sizes in ((24, 24), (2, 2), (3, 5), (7, 12), (17, 30)):
        check(graph, region, sizes)
