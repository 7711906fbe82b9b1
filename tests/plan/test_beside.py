"""Which layers run side by side, and the order that fusions take for it."""

from __future__ import annotations

import pytest

from building import Builder
from convoy.graph import Graph
from convoy.graph.ops import MatMul, Recurrent, Unary
from convoy.kernels.planner import make_plan
from convoy.kernels.recurrent import Recur, run_beside
from convoy.options import Options
from convoy.plan.beside import bring_together
from convoy.plan.fuse import fuse
from convoy.target import Target


def layer(b: Builder, x: str, width: int, cells: int, *, back: bool = False) -> str:
    """A product with the inputs, then the loop over the steps."""
    given = b.add(MatMul, x, b.weight(width, cells))
    return b.add(Recurrent, given, b.weight(cells, cells), b.weight(1, cells), kind="rnn", back=back)


def two_ways(cells: int, other: int, depth: int = 1) -> Graph:
    """Layers that all read the same, with a relu behind each."""
    b = Builder([1, 5, 7])
    return b.graph(
        *(
            b.add(Unary, layer(b, "x0", 7, size, back=back), kind="relu")
            for _ in range(depth)
            for size, back in ((cells, False), (other, True))
        )
    )


def one_behind_another() -> Graph:
    b = Builder([1, 5, 7])
    return b.graph(layer(b, layer(b, "x0", 7, 8), 8, 8))


def order(graph: Graph, most: int = 2) -> tuple[list[str], list[int]]:
    fusions, groups = bring_together(fuse(graph), most, lambda one, other: run_beside(one, other, graph))
    assert {fusion.output for fusion in fusions} == {fusion.output for fusion in fuse(graph)}
    return [type(fusion.anchor).__name__ for fusion in fusions], [len(group) for group in groups]


def test_what_both_read_comes_first() -> None:
    before = [type(fusion.anchor).__name__ for fusion in fuse(two_ways(8, 8))]
    assert before == ["MatMul", "Recurrent", "Unary"] * 2
    assert order(two_ways(8, 8)) == (["MatMul", "MatMul", "Recurrent", "Recurrent", "Unary", "Unary"], [2])


@pytest.mark.parametrize("graph", [two_ways(8, 9), one_behind_another()], ids=["of other cells", "stacked"])
def test_layers_of_other_sizes_or_behind_each_other_stay(graph: Graph) -> None:
    assert order(graph) == ([type(fusion.anchor).__name__ for fusion in fuse(graph)], [])


@pytest.mark.parametrize(("most", "groups"), [(1, []), (2, [2, 2]), (3, [3]), (4, [4])])
def test_as_many_as_threads_run_side_by_side(most: int, groups: list[int]) -> None:
    assert order(two_ways(8, 8, depth=2), most)[1] == groups


def steps(graph: Graph, threads: int) -> list[Recur]:
    plan = make_plan(graph, Target("avx2"), Options(threads=threads))
    return [step for step in plan.steps if isinstance(step, Recur)]


def test_threads_meet_within_layers_only_where_there_are_more_than_layers() -> None:
    (step,) = steps(two_ways(700, 700), 2)
    assert (len(step.layers), step.shared) == (2, False)
    (step,) = steps(two_ways(700, 700), 4)
    assert (len(step.layers), step.shared) == (2, True)
    apart = steps(two_ways(700, 700), 1)
    assert [len(step.layers) for step in apart] == [1, 1]


def test_all_that_layers_read_and_write_is_known() -> None:
    """Else memory of one that runs later would be another's."""
    (step,) = steps(two_ways(8, 8), 2)
    assert {layer.x for layer in step.layers} <= set(step.reads)
    assert {layer.y for layer in step.layers} == set(step.writes)
