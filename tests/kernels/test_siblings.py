"""Convolutions that read one tensor in the same way become one where that is estimated to pay."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from building import Builder
from convoy import backend
from convoy.graph import Graph
from convoy.graph.messages import op_name
from convoy.graph.ops import Binary, Concat, Conv2d, Unary
from convoy.graph.quantised import dequantize_constants
from convoy.graph.reference import run
from convoy.graph.verify import verify
from convoy.kernels.conv2d import siblings
from convoy.kernels.conv2d.siblings import find_families, merge_family, merge_siblings
from convoy.options import Options
from convoy.report.decision import Report
from convoy.target import Target
from quantising import Quantised, agree

TARGET = Target("avx512")


def branch(b: Builder, out: int, kernel: int = 1, kind: str | None = "relu", **attributes: object) -> str:
    y = b.add(
        Conv2d, "x0", b.weight(out, b.tensors["x0"].shape[1], kernel, kernel), b.weight(out), **attributes
    )
    return b.add(Unary, y, kind=kind) if kind else y


def reads(b: Builder, *branches: str) -> Graph:
    """Each branch read by a convolution of its own."""
    return b.graph(*(b.add(Conv2d, y, b.weight(3, b.tensors[y].shape[1], 1, 1)) for y in branches))


def family_sizes(graph: Graph) -> list[int]:
    return [len(f.siblings) for f in find_families(graph, TARGET, 1)]


@pytest.mark.parametrize("kind", ["relu", "silu", None])
@pytest.mark.parametrize("stride", [(1, 1), (2, 2)])
def test_siblings_become_one_convolution_and_slices(kind: str | None, stride: tuple[int, int]) -> None:
    # act(conv(x, w1)), act(conv(x, w2)), act(conv(x, w3))  =>  act(conv(x, w)), three slices of it
    b = Builder([1, 20, 9, 8])
    graph = reads(b, *(branch(b, out, kind=kind, stride=stride) for out in (7, 32, 16)))
    (family,) = find_families(graph, TARGET, 1)
    merged = merge_family(family.siblings, graph)
    verify(merged)
    first = ["conv2d"] + [kind] * bool(kind) + ["slice"] * 3
    assert [op_name(node) for node in merged.nodes] == [*first, "conv2d", "conv2d", "conv2d"]
    assert merged.shape(merged.nodes[0].output)[1] == 32 + 16 + 7
    arrays = b.arrays()
    for want, got in zip(run(graph, arrays), run(merged, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_a_merged_region_agrees_with_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "LEAST_GAIN", -1.0)
    b = Builder([1, 20, 9, 8])
    graph = reads(b, branch(b, 7), branch(b, 32), branch(b, 16))
    region = backend.load(graph, options=Options(threads=2))
    assert sum("conv2d" in step for step in region.code.report.steps) == 4
    assert not any("slice" in step for step in region.code.report.steps)
    arrays = b.arrays()
    for want, got in zip(run(graph, arrays, np.float64), region(*arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def twins() -> Sequence[tuple[str, Graph]]:
    """Graphs in which nobody has a sibling."""
    found = []
    b = Builder([1, 20, 9, 8])
    found.append(("other stride", reads(b, branch(b, 16), branch(b, 16, stride=(2, 2)))))
    b = Builder([1, 20, 9, 8])
    found.append(("other kernel", reads(b, branch(b, 16), branch(b, 16, 5, padding=(2, 2, 2, 2)))))
    b = Builder([1, 20, 9, 8])
    found.append(("other activation", reads(b, branch(b, 16), branch(b, 16, kind="silu"))))
    b = Builder([1, 20, 9, 8])
    pad = (1, 1, 1, 1)
    found.append(("winograd", reads(b, branch(b, 16, 3, padding=pad), branch(b, 16, 3, padding=pad))))
    b = Builder([1, 20, 9, 8])
    found.append(("an output", b.graph(branch(b, 16), branch(b, 16))))
    b = Builder([1, 20, 9, 8])
    found.append(("in a concat", b.graph(b.add(Concat, branch(b, 16), branch(b, 16), axis=1))))
    b = Builder([1, 16, 9, 8])
    left, right = (b.add(Binary, branch(b, 16, kind=None), "x0", kind="add") for _ in "ab")
    found.append(("a residual", reads(b, left, right)))
    b = Builder([1, 20, 9, 8])
    found.append(("two without whole blocks", reads(b, branch(b, 15), branch(b, 7))))
    b = Builder([1, 20, 9, 8])
    found.append(("groups", reads(b, branch(b, 16), b.add(Conv2d, "x0", b.weight(16, 5, 1, 1), groups=4))))
    return found


@pytest.mark.parametrize(("name", "graph"), twins(), ids=[name for name, _ in twins()])
def test_others_are_no_siblings(name: str, graph: Graph) -> None:
    assert family_sizes(graph) == []


@pytest.mark.parametrize(
    ("channels", "size", "choice"),
    [(192, 28, "apart from its siblings"), (256, 112, "merged with its siblings")],
    ids=["from a cache", "from memory"],
)
def test_only_an_input_that_comes_from_memory_pays(channels: int, size: int, choice: str) -> None:
    b = Builder([1, channels, size, size])
    graph = reads(b, branch(b, 16), branch(b, 16))
    report = Report()
    merged = merge_siblings(graph, TARGET, 2, report)
    assert (merged is graph) == choice.startswith("apart")
    assert [d.choice for d in report.decisions] == [choice] * 2
    assert "estimated kilocycles" in report.decisions[0].reason


def heads(q: Quantised, *channels: int) -> list[str]:
    """Of one small map: as one convolution of floats they would take half the time."""
    x = q.bytes(q.input(1, 112, 4, 1), 0.03, 117)
    return [q.unary(q.conv(x, out)) for out in channels]


@pytest.mark.slow
def test_those_that_multiply_bytes_stay_apart() -> None:
    q = Quantised()
    graph = q.graph(*(q.bytes(y, 0.02 + 0.01 * i) for i, y in enumerate(heads(q, 16, 5, 16))))
    assert not list(find_families(graph, TARGET, 1))
    agree(graph, q.numbers())
    floats = dequantize_constants(graph)  # the twin
    assert [len(family.siblings) for family in find_families(floats, TARGET, 1)] == [3]
