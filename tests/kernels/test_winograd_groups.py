"""Groups of whole blocks of channels by Winograd's algorithm: by all threads, or each by one in turns."""

from __future__ import annotations

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.messages import describe
from convoy.graph.ops import Binary, Conv2d, Unary
from convoy.graph.reference import run
from convoy.graph.sizes import open_size, symbols
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import Target
from pairs import pairs


def grouped(
    channels: int = 128, out: int = 192, groups: int = 2, kernel: int = 3, stride: int = 1,
    added: bool = False, size: int = 14, dilation: int = 1, bias: bool = True,
) -> tuple[Builder, Graph]:  # fmt: skip
    """A convolution of groups between two others."""
    b = Builder([1, channels, size, size])
    biases = [b.weight(out)] * bias
    x = b.add(Conv2d, "x0", b.weight(channels, channels, 1, 1))
    pad = kernel // 2 * dilation
    y = b.add(
        Conv2d, x, b.weight(out, channels // groups, kernel, kernel), *biases, groups=groups,
        padding=(pad,) * 4, stride=(stride, stride), dilation=(dilation, dilation),
    )  # fmt: skip
    if added:
        y = b.add(Binary, y, b.add(Conv2d, "x0", b.weight(out, channels, 1, 1)), kind="add")
    y = b.add(Unary, y, kind="relu")
    return b, b.graph(b.add(Conv2d, y, b.weight(3, out, 1, 1)))


def choose(graph: Graph, target: Target, options: Options) -> str:
    """What is decided about the convolution of groups."""
    report = Report()
    backend.generate(graph, None, target, options, report)
    (conv,) = (node for node in graph.nodes if isinstance(node, Conv2d) and node.groups > 1)
    (choice,) = (d.choice for d in report.decisions if d.step == "plan" and d.node == describe(conv))
    return choice


GROUPED: list[dict[str, int]] = [
    {},
    {"channels": 256, "out": 256, "groups": 4},
    {"added": True},
    {"bias": False},
    {"dilation": 2, "size": 28},
]


@pytest.mark.parametrize(("target", "threads", "case"), pairs(["portable", "avx2"], [1, 2, 4], GROUPED))
def test_a_region_agrees_with_the_reference(target: str, threads: int, case: dict[str, int]) -> None:
    b, graph = grouped(**case)  # type: ignore[arg-type]
    region = backend.load(graph, Target(target), Options(threads=threads))
    assert sum("winograd" in step for step in region.code.report.steps) == 1
    groups = case.get("groups", 2)
    assert f"g < {groups}; {'g++' if threads > groups else 'g += t.count'}" in region.code.sources[0]
    arrays = b.arrays()
    for want, got in zip(run(graph, arrays, np.float64), region(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())


TWINS: dict[str, dict[str, int]] = {
    "groups share blocks": {"channels": 24, "out": 24},
    "groups of a block": {"channels": 16, "out": 16},
    "another kernel": {"kernel": 5},
    "a stride": {"stride": 2},
    "few channels for many transforms": {"channels": 512, "out": 512, "groups": 32, "size": 4},
}


@pytest.mark.parametrize("twin", TWINS)
def test_others_are_direct_or_depthwise(twin: str) -> None:
    _, graph = grouped(**TWINS[twin])  # type: ignore[arg-type]
    assert "winograd" not in choose(graph, Target("avx2"), Options(threads=2))


def test_exact_accuracy_has_no_winograd() -> None:
    _, graph = grouped()
    assert choose(graph, Target("avx2"), Options(threads=2)) == "winograd F(4x4, 3x3)"
    assert "winograd" not in choose(graph, Target("avx2"), Options(threads=2, accuracy="direct"))


@pytest.mark.slow
def test_what_is_no_number_stays_in_its_group() -> None:
    b = Builder([1, 128, 12, 12])
    y = b.add(Conv2d, "x0", b.weight(128, 64, 3, 3), groups=2, padding=(1, 1, 1, 1))
    graph = b.graph(y)
    region = backend.load(graph, Target("avx2"), Options(threads=2))
    assert any("winograd" in step for step in region.code.report.steps)
    (x,) = b.arrays()
    x[0, 70, 5, 5] = np.nan
    (found,) = region(x)
    assert np.isfinite(found[:, :64]).all()
    assert np.isnan(found[:, 64:]).any()


@pytest.mark.slow
def test_sizes_known_at_the_call() -> None:
    b = Builder([1, 128, open_size("size[0]", 24, 3), open_size("size[1]", 24, 3)])
    y = b.add(Conv2d, "x0", b.weight(128, 64, 3, 3), b.weight(128), groups=2, padding=(1, 1, 1, 1))
    graph = b.graph(b.add(Unary, y, kind="relu"))
    region = backend.load(graph, Target("avx2"), Options(threads=2))
    assert "winograd" in region.code.sources[0]
    for height, width in ((24, 24), (3, 5), (17, 40), (64, 31)):
        x = np.random.default_rng(height).standard_normal((1, 128, height, width), np.float32)
        sizes = dict(zip(symbols(graph.shape("x0")), (height, width), strict=True))
        (want,) = run(graph.bound(sizes), [x], np.float64)
        (got,) = region(x)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max())
