"""graph/signals.py: what reads a signal is planned for a long one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from building import Builder
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d, Slice
from convoy.graph.signals import LIKELY_FRAMES, LIKELY_SIGNAL, expect_elements, expect_signals
from convoy.graph.sizes import hint, largest, open_size


def convolve(channels: int, rows: int, stride: int = 1) -> Graph:
    b = Builder([1, channels, rows, open_size("n", 128, 9)])
    return b.graph(b.add(Conv2d, "x0", b.weight(4, channels, 1, 9), stride=(1, stride)))


@pytest.mark.parametrize("stride", [1, 160])
def test_a_row_of_one_channel_is_long(stride: int) -> None:
    graph = expect_signals(convolve(1, 1, stride))
    assert graph.likely.shape(graph.inputs[0])[3] == LIKELY_SIGNAL


@pytest.mark.parametrize(("channels", "rows"), [(2, 1), (1, 2)])
def test_sequences_and_images_are_what_they_were(channels: int, rows: int) -> None:
    graph = expect_signals(convolve(channels, rows))
    assert graph.likely.shape(graph.inputs[0])[3] == 128


def convolve_frames(hop: int) -> Graph:
    """Two rows of frames, of which there is one for so many samples."""
    samples = open_size("n", 128, hop)
    b = Builder([1, 1, 2, samples // hop])
    return b.graph(b.add(Conv2d, "x0", b.weight(4, 1, 1, 1)))


def test_frames_of_few_samples_are_more() -> None:
    graph = expect_signals(convolve_frames(256))
    assert hint(graph.shape(graph.inputs[0])[3]) == LIKELY_FRAMES // 2


def test_pixels_that_were_halved_are_what_they_were() -> None:
    graph = expect_signals(convolve_frames(10))
    assert hint(graph.shape(graph.inputs[0])[3]) == 12


@pytest.mark.parametrize("cut", [lambda n: n - 400, lambda n: (n - 512) // 160 + 1, lambda n: 2 * n - 700])
def test_what_is_cut_is_likely_long_enough(cut: Callable[[int], int]) -> None:
    samples, frames = open_size("n", 320), open_size("m", 7)
    expect_elements([samples, cut(samples), cut(samples) * frames])
    assert hint(cut(samples)) >= 1
    assert hint(samples) == 640
    assert hint(frames) == 7


@pytest.mark.parametrize(
    "cut", [lambda n: n - 319, lambda n: largest(0, n - 400), lambda n: n % 4, lambda n: 100 - n]
)
def test_what_has_elements_or_may_have_none_is_what_it_was(cut: Callable[[int], int]) -> None:
    samples = open_size("n", 320)
    expect_elements([cut(samples)])
    assert hint(samples) == 320


def test_a_graph_of_what_is_cut_has_elements() -> None:
    samples = open_size("n", 128, 513)
    b = Builder([1, 4, 1, samples])
    graph = expect_signals(b.graph(b.add(Slice, "x0", axis=3, begin=512, end=samples)))
    assert graph.likely.shape(graph.outputs[0])[3] == 512
