"""Under Winograd a value that is not finite reaches its whole tile, and nothing beyond.

Direct convolution gives NaN or an infinity to the 3x3 pixels that read the value.  Winograd adds and
subtracts all pixels of a tile first: all outputs of the tile come out NaN or infinite.
``accuracy="direct"`` has ONNX Runtime's answer.
"""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.ops import Conv2d
from convoy.graph.reference import run
from convoy.options import Options
from convoy.target import host

SIZE, ROW, COLUMN = 28, 13, 6
TILE = 4
"""Pixels a side of the largest tile."""


def conv() -> Graph:
    b = Builder([1, 64, SIZE, SIZE])
    return b.graph(b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), padding=(1, 1, 1, 1)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_what_is_not_finite_stays_in_the_tiles_that_read_it(value: float) -> None:
    graph = conv()
    (x,) = Builder([1, 64, SIZE, SIZE]).arrays()
    x[0, 5, ROW, COLUMN] = value
    region = backend.load(graph, host(), Options(threads=2))
    assert any("winograd" in step for step in region.code.report.steps)
    (found,) = region(x)
    with np.errstate(invalid="ignore"):
        (expected,) = run(graph, [x], np.float64)
    lost = ~np.isfinite(found)
    assert lost[~np.isfinite(expected)].all()
    _, _, rows, columns = np.nonzero(lost)
    # a tile that reads the value begins at most TILE pixels before it and ends as far behind
    assert np.abs(rows - ROW).max() <= TILE
    assert np.abs(columns - COLUMN).max() <= TILE
    np.testing.assert_allclose(
        found[~lost], expected[~lost], rtol=0, atol=1e-5 * np.abs(expected[~lost]).max()
    )


@pytest.mark.parametrize("value", [np.nan, np.inf], ids=str)
def test_accuracy_direct_loses_nothing_else(value: float) -> None:
    graph = conv()
    (x,) = Builder([1, 64, SIZE, SIZE]).arrays()
    x[0, 5, ROW, COLUMN] = value
    (found,) = backend.load(graph, host(), Options(threads=2, accuracy="direct"))(x)
    with np.errstate(invalid="ignore"):
        (expected,) = run(graph, [x], np.float64)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
