"""graph/signals.py: what reads a signal is planned for a long one."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.signals import LIKELY_SIGNAL, expect_signals
from convoy.graph.sizes import open_size


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
