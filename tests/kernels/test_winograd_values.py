"""What is not finite reaches the pixels that read it under Winograd's algorithm too, and no others.

Its transforms mix all pixels of a tile; the kernel computes a tile again that is lost by that.
All schedules: test_winograd_schedules.py.
"""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph.ops import Conv2d
from convoy.graph.reference import run
from convoy.options import Accuracy, Options
from convoy.target import host

SIZE = 28


@pytest.mark.slow
@pytest.mark.parametrize("accuracy", ["fast", "direct"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_what_is_not_finite_reaches_the_pixels_that_read_it(value: float, accuracy: Accuracy) -> None:
    b = Builder([1, 64, SIZE, SIZE])
    graph = b.graph(b.add(Conv2d, "x0", b.weight(64, 64, 3, 3), padding=(1, 1, 1, 1)))
    (x,) = b.arrays()
    x[0, 5, 13, 6] = value
    region = backend.load(graph, host(), Options(threads=2, accuracy=accuracy))
    assert any("winograd" in step for step in region.code.report.steps) == (accuracy == "fast")
    (found,) = region(x)
    with np.errstate(invalid="ignore"):
        (expected,) = run(graph, [x], np.float64)
    finite = np.isfinite(expected)
    assert np.count_nonzero(~finite) == 64 * 3 * 3
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    np.testing.assert_allclose(
        found[finite], expected[finite], rtol=0, atol=1e-5 * np.abs(expected[finite]).max()
    )
