"""Maps and products of bfloat16: which a plan has, and that what it computes is right."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.dtypes import round_bfloat16, widen_bfloat16
from convoy.graph.ops import Binary, Conv2d, GroupNorm, MatMul, Pool2d, Reduce, Unary
from convoy.graph.reference import run
from convoy.kernels.conv2d.direct import DirectConv
from convoy.kernels.conv2d.winograd import WinogradConv
from convoy.kernels.layout import Convert
from convoy.kernels.matmul import Gemm
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.plan.buffers import Map
from convoy.report.decision import Report
from convoy.target import MACHINES, InstructionSet, Target, host
from instruction_sets import HOST_SETS, in_turn, of_bfloat16
from quantising import Quantised, on_any_threads
from together import Asked

ZEN4 = MACHINES["znver4"].for_precision("bf16")
BOUND = 2e-2
"""Error of a few layers, of the largest output: each rounds to 8 bits."""


def conv(b: Builder, x: str, out: int, kernel: int = 1, groups: int = 1, **attributes: object) -> str:
    pad = kernel // 2
    channels = b.tensors[x].shape[1] // groups
    w, bias = b.weight(out, channels, kernel, kernel), b.weight(out)
    return b.add(Conv2d, x, w, bias, padding=(pad,) * 4, groups=groups, **attributes)


def maps_of(graph: Graph, target: Target = ZEN4) -> list[str]:
    """The types of the maps that convolutions make, in running order."""
    steps = make_plan(graph, target, Options(threads=1)).steps
    made = [step.y for step in steps if isinstance(step, DirectConv | WinogradConv)]
    return [y.dtype for y in made if isinstance(y, Map)]


def test_a_map_between_products_of_bfloat16_is_of_bfloat16() -> None:
    # conv -> conv -> output  =>  the first result is stored in bfloat16, the last one is not
    b = Builder([1, 32, 9, 9])
    graph = b.graph(conv(b, conv(b, "x0", 64), 32))
    assert maps_of(graph) == ["bfloat16", "float32"]
    assert maps_of(graph, MACHINES["znver4"]) == ["float32", "float32"]


def test_a_map_that_a_kernel_of_float32_makes_is_converted_once() -> None:
    # group norm -> two convs  =>  the norm's map is float32, and both convs read one copy of it
    b = Builder([1, 32, 9, 9])
    x = b.add(GroupNorm, conv(b, "x0", 64), groups=4, epsilon=1e-5)
    graph = b.graph(conv(b, x, 32), conv(b, x, 16))
    steps = make_plan(graph, ZEN4, Options(threads=1)).steps
    of_norm = [s for s in steps if isinstance(s, Convert) and s.x.channels == 64]
    assert [s.y.dtype for s in of_norm] == ["bfloat16"]


@pytest.mark.slow
@pytest.mark.parametrize("isa", HOST_SETS)
def test_what_only_dequantises_makes_float32(isa: InstructionSet) -> None:
    # conv of bytes -> dequantize -> mean  =>  no map of bfloat16, which the mean would take
    q = Quantised()
    y = q.bytes(q.conv(q.bytes(q.input(1, 32, 9, 9), 0.02, 128), 48, 3), 0.05, 130)
    graph = q.graph(q.op(Reduce, y, shape=(1, 48, 1, 1), kind="mean", axes=(2, 3)))
    arrays = q.numbers()
    (found,) = backend.load(graph, of_bfloat16(isa), Options(threads=1))(*arrays)
    (want,) = run(graph, arrays, np.float64)
    np.testing.assert_allclose(found, want, atol=BOUND * np.abs(want).max())


def test_a_machine_without_the_instructions_computes_in_float32_and_says_so() -> None:
    b = Builder([1, 32, 9, 9])
    graph, options = b.graph(conv(b, conv(b, "x0", 64), 32)), Options(precision="bf16")
    report = Report()
    haswell = MACHINES["haswell"].for_precision("bf16")
    assert not haswell.bfloat16
    backend.generate(graph, "region", haswell, options, report)
    assert [(d.choice, "avx512bf16" in d.reason) for d in report.decisions if "precision" in d.node] == [
        ("float32", True)
    ]
    report = Report()
    backend.generate(graph, "region", ZEN4, options, report)
    assert not any("precision" in d.node for d in report.decisions)


def test_flags_are_those_of_the_precision() -> None:
    assert "-mavx512bf16" in ZEN4.flags
    assert "-mavx512bf16" not in MACHINES["znver4"].flags
    assert "-mavx512bf16" not in MACHINES["skylake-avx512"].for_precision("bf16").flags


def test_rounding_is_to_nearest_even_and_keeps_what_is_not_finite() -> None:
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF], np.uint32).view(np.float32)
    values = np.array([*ties, np.inf, -np.inf, np.nan, -0.0], np.float32)
    found = widen_bfloat16(round_bfloat16(values))
    expected = np.array([1.0, 1.015625, 1.0078125, np.inf, np.inf, -np.inf, np.nan, -0.0], np.float32)
    np.testing.assert_array_equal(found, expected)


def winograd(b: Builder) -> str:
    x = b.add(Unary, conv(b, "x0", 64, 3), kind="relu")
    y = b.add(Binary, conv(b, x, 64, 3), x, kind="add")
    return b.add(Pool2d, b.add(Unary, y, kind="silu"), kind="max", kernel=(2, 2), stride=(2, 2))


def wide_channels(b: Builder) -> str:
    """Chunks that float32 would cut along the input, and channels that fill no block or cell."""
    return conv(b, conv(b, conv(b, "x0", 700, 3, stride=(2, 2)), 77), 33, 3, stride=(2, 2))


def dilated(b: Builder) -> str:
    return conv(b, conv(b, "x0", 48, 3, dilation=(2, 2)), 40, 3, dilation=(3, 3))


def grouped(b: Builder) -> str:
    """Groups that end within a block and within a cell, and blocks and cells that hold several."""
    x = conv(b, conv(b, "x0", 102, groups=2), 3 * 34, 3, groups=3, stride=(2, 2))
    return conv(b, conv(b, x, 6 * 7, groups=6), 14 * 5, 3, groups=14)


NETWORKS = {"winograd": winograd, "wide channels": wide_channels, "dilated": dilated, "grouped": grouped}


def network(name: str) -> Graph:
    b = Builder([1, 64, 22, 19])
    return b.graph(conv(b, NETWORKS[name](b), 24))


def asked_network(name: str, isa: InstructionSet) -> list[Asked]:
    return [Asked(network(name), of_bfloat16(isa))]


@pytest.mark.slow
@pytest.mark.together(of=asked_network)
@pytest.mark.parametrize(("name", "isa"), in_turn(NETWORKS, everywhere=["winograd"]))
def test_networks_agree_with_float64(name: str, isa: InstructionSet, regions: list[LoadedRegion]) -> None:
    agree(network(name), regions[0])


def products(rows: int, k: int, n: int) -> Graph:
    b = Builder([rows, k], batch=1) if rows == 1 else Builder([1, rows, k])
    y = b.add(Unary, b.add(MatMul, "x0", b.weight(k, n), b.weight(n)), kind="relu")
    return b.graph(b.add(MatMul, y, b.weight(n, 19)))


def asked_products(isa: InstructionSet, rows: int, k: int, n: int) -> list[Asked]:
    return [Asked(products(rows, k, n), of_bfloat16(isa))]


@pytest.mark.together(of=asked_products)
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize(("rows", "k", "n"), [(1, 2500, 70), (1, 17001, 33), (5, 1031, 40), (40, 2051, 67)])
def test_products_of_any_depth_agree_with_float64(
    isa: InstructionSet, rows: int, k: int, n: int, regions: list[LoadedRegion]
) -> None:
    graph = products(rows, k, n)
    plan = make_plan(graph, ZEN4, Options(threads=1))
    assert {step.w.dtype for step in plan.steps if isinstance(step, Gemm)} == {"bfloat16"}
    agree(graph, regions[0])


@pytest.mark.slow
def test_values_that_are_not_finite_go_where_they_go_in_float32() -> None:
    b = Builder([1, 32, 12, 12])
    graph = b.graph(conv(b, conv(b, "x0", 32, 3), 16))
    (x,) = b.arrays()
    x[0, 3, 2, 2], x[0, 5, 9, 9], x[0, 7, 2, 9] = np.nan, np.inf, -np.inf
    found = backend.load(graph, of_bfloat16(host().isa), Options(threads=2))(x)[0]
    expected = backend.load(graph, host(), Options(threads=2))(x)[0]
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))


def in_groups(groups: int, each: int, out: int) -> tuple[Builder, Graph]:
    b = Builder([1, groups * each, 7, 9])
    y = conv(b, conv(b, "x0", groups * each, groups=groups), groups * out, 3, groups=groups)
    return b, b.graph(y)


def asked_in_groups(groups: int, each: int, out: int, isa: InstructionSet) -> list[Asked]:
    return [Asked(in_groups(groups, each, out)[1], of_bfloat16(isa), Options(threads=2))]


@pytest.mark.together(of=asked_in_groups)
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize(("groups", "each", "out"), [(3, 34, 34), (5, 7, 9), (4, 32, 48), (2, 51, 32)])
def test_what_is_not_finite_stays_in_its_group(
    groups: int, each: int, out: int, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    b, graph = in_groups(groups, each, out)
    steps = make_plan(graph, of_bfloat16(isa), Options(threads=1)).steps
    assert {s.x.dtype for s in steps if isinstance(s, DirectConv)} == {"bfloat16"}
    (x,) = b.arrays()
    (finite,) = regions[0](x)
    edges = sorted({edge for end in range(0, groups * each, each) for edge in (end, end + each - 1)})
    for channel, value in product(edges, (np.nan, np.inf, -np.inf)):
        changed, group = x.copy(), channel // each
        changed[0, channel, 3, 4] = value
        (found,) = regions[0](changed)
        own = slice(group * out, (group + 1) * out)
        assert not np.isfinite(found[:, own]).all()
        np.testing.assert_array_equal(np.delete(found, own, 1), np.delete(finite, own, 1))


def agree(graph: Graph, region: LoadedRegion) -> None:
    """With float64, within the bound; and with itself on other threads, to the last bit."""
    random = np.random.default_rng(3)
    arrays = [random.standard_normal(graph.shape(name)).astype(np.float32) for name in graph.inputs]
    for got, want in zip(on_any_threads(region, arrays), run(graph, arrays, np.float64), strict=True):
        error = float(np.abs(got - want).max() / np.abs(want).max())
        assert 1e-6 < error <= BOUND, f"error {error:.2e} of the largest output"
