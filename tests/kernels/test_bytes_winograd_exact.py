"""Winograd convolutions in integers: the same bytes as by the definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from convoy.backend import LoadedRegion
from convoy.graph import Graph
from convoy.graph.ops import Conv2d, Dequantize
from convoy.kernels.conv2d.exact import MOST_OUTPUT, is_exact
from convoy.options import Accuracy
from convoy.target import InstructionSet, Target
from instruction_sets import HOST_SETS, in_turn, of_free_winograd
from kernels.test_bytes_winograd import CASES as OF_FLOATS
from kernels.test_bytes_winograd import convolutions
from quantising import Cases, Quantised, each_way, on_any_threads
from together import Asked

case = CASES = Cases()
CASES.update(OF_FLOATS)


@case
def half_a_pair_of_blocks(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 17, 13, 9), 0.03, 255)
    return [q.bytes(q.conv(x, 19, 3, bias=False), 0.02, 100)]


@case
def a_batch(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 40, 12, 10), 0.03)
    return [q.bytes(q.conv(q.bytes(q.unary(q.conv(x, 24, 3)), 0.02), 16, 3), 0.02, 130)]


@case
def one_pixel_of_padding_on_one_side(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 32, 12, 15), 0.03, 3)
    return [q.bytes(q.conv(x, 40, 3, padding=(1, 1, 0, 0)), 0.02, 121)]


@case
def many_channels_of_few_pixels(q: Quantised) -> list[str]:
    x = q.bytes(q.input(1, 200, 4, 3), 0.03, 117)
    return [q.bytes(q.conv(x, 168, 3), 0.02, 121)]


def of_integers(isa: InstructionSet) -> Target:
    """A target on which Winograd convolutions in integers take no time, and products of bytes long."""
    t = of_free_winograd(Target(isa))
    return replace(t, direct=replace(t.direct, bytes_apart=50.0))


def by_definition(isa: InstructionSet) -> Target:
    t = Target(isa)
    return replace(t, direct=replace(t.direct, bytes_apart=0.0))


def made(name: str) -> tuple[Graph, list[NDArray[np.float32]]]:
    """A case's network, and numbers for it."""
    q = Quantised()
    graph = q.graph(*CASES[name](q))
    arrays = q.numbers()
    if name == "a_batch":
        graph = replace(graph, batch=3)
        arrays = [np.concatenate([a, -a, a[:, ::-1]]) for a in arrays]
    return graph, arrays


def both_ways(graph: Graph, isa: InstructionSet) -> list[Asked]:
    return each_way(graph, [of_integers(isa), by_definition(isa)])


def asked(name: str, isa: InstructionSet) -> list[Asked]:
    return both_ways(made(name)[0], isa)


@pytest.mark.slow
@pytest.mark.together(of=asked)
@pytest.mark.parametrize(("name", "isa"), in_turn(CASES))
def test_bytes_are_those_of_the_definition(
    name: str, isa: InstructionSet, regions: list[LoadedRegion]
) -> None:
    graph, arrays = made(name)
    exact, direct = of_integers(isa), by_definition(isa)
    for dtype, precision, kind in convolutions(graph, exact):
        assert (dtype, precision, kind) == ("uint8", "int8", "winograd F(4x4, 3x3), int16")
    assert all("direct" in kind for *_, kind in convolutions(graph, direct))
    (got,), (want,) = (on_any_threads(region, arrays) for region in regions)
    assert len(np.unique(want)) > 20, "the example shows nothing"
    np.testing.assert_array_equal(got, want)


def of_weights(w: NDArray[np.int8], zero: int, shift: float) -> Graph:
    """conv(x, w) + shift, rounded to a multiple of 4096."""
    q = Quantised()
    x = q.bytes(q.input(1, w.shape[1], 9, 8), 1.0, zero)
    weight = q.b.dequantize(q.b.constant(w), np.ones(len(w), np.float32), np.zeros(len(w), np.int8))
    bias = q.b.constant(np.full(len(w), shift, np.float32))
    y = q.b.node(Conv2d, (x, weight, bias), (1, len(w), 9, 8), padding=(1, 1, 1, 1))
    return q.graph(q.bytes(y, 4096.0, 128))


def at_the_bound(weight: int, zero: int) -> tuple[Graph, int, float]:
    """A network, its input channels, and what all its inputs are."""
    channels = MOST_OUTPUT // (9 * 127 * 255)
    w = np.full((16, channels, 3, 3), weight, np.int8)
    step = 255.0 if zero == 0 else -255.0
    return of_weights(w, zero, -9 * channels * weight * step), channels, step


def asked_at_the_bound(isa: InstructionSet, weight: int, zero: int) -> list[Asked]:
    return both_ways(at_the_bound(weight, zero)[0], isa)


@pytest.mark.slow
@pytest.mark.together(of=asked_at_the_bound)
@pytest.mark.parametrize("isa", HOST_SETS)
@pytest.mark.parametrize(("weight", "zero"), [(127, 0), (-127, 0), (127, 255), (-127, 255)])
def test_sums_at_the_bound_are_exact(
    isa: InstructionSet, weight: int, zero: int, regions: list[LoadedRegion]
) -> None:
    graph, channels, step = at_the_bound(weight, zero)
    x = np.full((1, channels, 9, 8), step, np.float32)
    x[0, 0, 4, 3] = 0  # a difference of 127 * 255 in some
    exact = of_integers(isa)
    assert [kind for *_, kind in convolutions(graph, exact)] == ["winograd F(4x4, 3x3), int16"]
    (got,), (want,) = (on_any_threads(region, [x]) for region in regions)
    assert got[0, 0, 2, 6] == 0
    assert got[0, 0, 4, 4] == -8 * 4096 * np.sign(weight * step)
    np.testing.assert_array_equal(got, want)


def found_exact(flat: list[int], zero: int) -> bool:
    w = np.zeros((16, 128 * 9), np.int8)
    w[3, : len(flat)] = flat
    graph = of_weights(w.reshape(16, 128, 3, 3), zero, 0.0)
    data, weight = (
        node for node in graph.nodes if isinstance(node, Dequantize) and node.output != graph.outputs[0]
    )
    return is_exact(data, weight, graph)


def test_weights_whose_sums_may_be_too_large_are_not_taken() -> None:
    whole, rest = divmod(MOST_OUTPUT // 255, 127)
    largest = [127] * whole + [rest]
    for sign in (1, -1):
        for zero in (0, 255):
            assert found_exact([sign * w for w in largest], zero)
            assert not found_exact([sign * w for w in (*largest, 1)], zero)
            assert found_exact([sign * w for w in (*largest, -127)], zero)  # they are never at once
        assert found_exact([sign * w for w in (*largest, *largest[:5])], 128)


def test_too_large_sums_are_left_to_others() -> None:
    w = np.full((16, 130, 3, 3), 127, np.int8)
    for isa in HOST_SETS:
        found = convolutions(of_weights(w, 0, 0.0), of_integers(isa))
        assert found
        assert all("int16" not in kind for *_, kind in found)


@pytest.mark.parametrize("accuracy", ["direct", "fast", "fastest"])
def test_it_is_taken_whatever_accuracy_is_asked_for(accuracy: Accuracy) -> None:
    q = Quantised()
    graph = q.graph(*CASES["half_a_pair_of_blocks"](q))
    target = of_integers(HOST_SETS[-1])
    found = convolutions(graph, target, accuracy)
    assert [kind for *_, kind in found] == ["winograd F(4x4, 3x3), int16"]
