"""Quantised regions by float kernels: the same bytes as ONNX's definition, on every instruction set."""

from __future__ import annotations

import numpy as np
import pytest

from convoy.backend import generate, load
from convoy.graph import Graph
from convoy.graph.builder import Builder
from convoy.graph.dtypes import ARRAYS, DType, range_of
from convoy.graph.ops import Binary, Conv2d, Unary
from convoy.graph.quantised import dequantize_constants
from convoy.graph.reference import run
from convoy.kernels.elementwise import ElementwiseArray, ElementwiseMap
from convoy.kernels.planner import make_plan
from convoy.options import Options
from convoy.target import InstructionSet, Target, host
from instruction_sets import HOST_SETS
from pairs import pairs
from quantising import Quantised, bytes_targets, hold_to_exact

SPECIAL = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.25, 0.75, -0.25, -0.75, 0.0]


def values(shape: tuple[int, ...]) -> np.ndarray:
    """Random numbers, halves of steps among them, and what is no number."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32) * 40
    flat = x.reshape(-1)
    flat[::3] = np.round(flat[::3]) / 4
    flat[: len(SPECIAL)] = SPECIAL
    return x


@pytest.mark.parametrize(("isa", "dtype", "channels"), pairs(HOST_SETS, ["uint8", "int8"], [1, 5]))
def test_bytes_leave_and_enter_a_region(isa: InstructionSet, dtype: DType, channels: int) -> None:
    target = Target(isa)
    b = Builder("images")
    x = b.input("x", (1, 5, 3, 11))
    scale, zero = np.linspace(0.5, 0.3, channels), np.arange(channels, dtype=ARRAYS[dtype])
    out = b.quantize(x, scale, zero, 1)
    graph = b.finish((x,), (out,), None)
    data = values((3, 5, 3, 11))
    (wanted,) = run(graph, [data])
    (found,) = load(graph, target, Options(threads=3))(data)
    assert found.dtype == ARRAYS[dtype]
    np.testing.assert_array_equal(found, wanted)

    b = Builder("images")
    x = b.input("x", (1, 5, 3, 11), dtype)
    graph = b.finish((x,), (b.dequantize(x, scale, zero, 1),), None)
    (found,) = load(graph, target)(wanted)
    np.testing.assert_array_equal(found, run(graph, [wanted])[0])


def test_sums_of_32_bits_enter_a_region() -> None:
    b = Builder("flat")
    x = b.input("x", (1, 40), "int32")
    graph = b.finish((x,), (b.dequantize(x, np.float32([0.1]), np.int32([-7])),), 1)
    data = np.random.default_rng(0).integers(-(2**31), 2**31, (1, 40)).astype(np.int32)
    np.testing.assert_array_equal(load(graph)(data)[0], run(graph, [data])[0])


def between_convolutions(dtype: DType, scale: float = 0.05) -> Graph:
    """conv → quantise → dequantise → relu → conv: float kernels, a step of rounding between them."""
    b = Builder("images")
    x = b.input("x", (1, 3, 9, 9))
    random = np.random.default_rng(0)
    zero = np.array([11]).astype(dtype)
    w, v = (
        b.dequantize(
            b.constant(random.integers(*range_of("int8"), size).astype(np.int8)),
            random.uniform(0.001, 0.01, size[0]), np.zeros(size[0], np.int8), 0,
        )
        for size in ((20, 3, 3, 3), (6, 20, 1, 1))
    )  # fmt: skip
    y = b.node(Conv2d, (x, w), (1, 20, 7, 7))
    y = b.dequantize(b.quantize(y, np.float32(scale), zero), np.float32(scale), zero)
    y = b.node(Unary, (y,), (1, 20, 7, 7), kind="relu")
    return b.finish((x,), (b.node(Conv2d, (y, v), (1, 6, 7, 7)),), None)


@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_what_is_quantised_and_dequantised_at_once_is_a_step_of_a_chain(
    isa: InstructionSet, dtype: DType
) -> None:
    graph = between_convolutions(dtype)
    x = np.random.default_rng(1).standard_normal((2, 3, 9, 9)).astype(np.float32)
    (wanted,) = run(graph, [x])
    (found,) = load(graph, Target(isa))(x)
    off = np.abs(found - wanted) > 1e-4 * np.abs(wanted).max()
    assert off.mean() < 0.02, "more than a tie of the rounding now and then"
    assert np.abs(found - wanted).max() < 0.05 * 0.01 * 128 * 20, "steps of more than one"


def test_a_chain_holds_the_step_and_what_follows() -> None:
    plan = make_plan(dequantize_constants(between_convolutions("uint8")), host())
    chains = [step for step in plan.steps if isinstance(step, ElementwiseMap)]
    assert [[expr.op for expr in step.exprs] for step in chains] == [["requantize", "relu"]]


def test_what_another_op_reads_as_bytes_is_no_step_of_a_chain() -> None:
    # quantize -> (dequantize, the region's output): the bytes are there
    b = Builder("flat")
    x = b.input("x", (1, 40))
    one, zero = np.float32([0.5]), np.uint8([3])
    q = b.quantize(x, one, zero)
    y = b.node(Binary, (b.dequantize(q, one, zero), x), (1, 40), kind="add")
    graph = b.finish((x,), (q, y), 1)
    steps = make_plan(graph, host()).steps
    chains = [[e.op for e in step.exprs] for step in steps if isinstance(step, ElementwiseArray)]
    assert chains == [["dequantize", "add"]]
    data = values((1, 40))
    for found, wanted in zip(load(graph)(data), run(graph, [data]), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_another_scale_behind_is_no_step_of_a_chain() -> None:
    b = Builder("flat")
    x = b.input("x", (1, 40))
    q = b.quantize(x, np.float32([0.5]), np.uint8([3]))
    graph = b.finish((x,), (b.dequantize(q, np.float32([0.25]), np.uint8([3])),), 1)
    data = values((1, 40))
    np.testing.assert_array_equal(load(graph)(data)[0], run(graph, [data])[0])


@pytest.mark.parametrize("isa", HOST_SETS)
def test_a_byte_that_stands_for_0_has_no_sign(isa: InstructionSet) -> None:
    # reciprocal(dequantize(quantize(x))): of what is rounded to 0 from below, infinity and not -infinity
    b = Builder("flat")
    x = b.input("x", (1, 40))
    one, zero = np.float32([0.5]), np.uint8([117])
    y = b.node(Unary, (b.dequantize(b.quantize(x, one, zero), one, zero),), (1, 40), kind="reciprocal")
    graph = b.finish((x,), (y,), 1)
    data = (np.arange(40, dtype=np.float32)[None] - 20) / 10
    (found,) = load(graph, Target(isa))(data)
    with np.errstate(divide="ignore"):
        (wanted,) = run(graph, [data])
    assert (data[np.isinf(wanted)] < 0).any(), "the example shows nothing"
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("channels", [5, 32])
def test_bytes_leave_a_map_as_floats_in_one_step(channels: int) -> None:
    q = Quantised()
    made = q.conv(q.bytes(q.input(1, 24, 9, 13), 0.03, 114), channels, 3)
    graph = q.graph(q.bytes(made, 0.05, 100))
    data = q.numbers()
    for target in bytes_targets():
        steps = generate(graph, None, target, Options(threads=1)).report.steps
        assert steps[-1].startswith("dequantize")
        assert not any(step.startswith("unpack") for step in steps)
        hold_to_exact(graph, [*load(graph, target, Options(threads=2))(*data)], data)


def test_bytes_with_a_scale_for_each_channel_are_unpacked_before() -> None:
    q = Quantised()
    x = q.conv(q.bytes(q.input(1, 24, 9, 13), 0.03, 114), 8, 3)
    scale, zero = np.linspace(0.5, 0.3, 8, dtype=np.float32), np.full(8, 100, np.uint8)
    graph = q.graph(q.b.dequantize(q.b.quantize(x, scale, zero, 1), scale, zero, 1))
    steps = generate(graph, None, bytes_targets()[-1], Options(threads=1)).report.steps
    assert any(step.startswith("unpack") for step in steps)
