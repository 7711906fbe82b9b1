"""graph/signals.py: what reads a signal is planned for a long one."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.signals import LIKELY_FRAMES, LIKELY_SIGNAL, expect_signals
from convoy.graph.sizes import hint, open_size


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
