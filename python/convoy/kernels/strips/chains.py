"""Which fusions run together strip by strip, by estimated time.  Every chain is a ``Decision``.

Groups that read one another's results form paths; a path is cut into chains where the estimates say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from convoy.graph.graph import Graph
from convoy.graph.messages import describe
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.precision import Narrow
from convoy.kernels.strips.chain_cost import estimate_chain
from convoy.kernels.strips.stage import Stage, make_stage
from convoy.kernels.strips.window import MOST_MEMBERS, Chain
from convoy.plan.fuse import Fusion
from convoy.plan.views import View
from convoy.report.decision import Report
from convoy.target import Target


def choose_chains(
    graph: Graph,
    fusions: Sequence[Fusion],
    blocked: Mapping[str, bool],
    views: Mapping[str, View],
    choices: Mapping[str, Choice],
    target: Target,
    threads: int,
    narrow: Collection[str] = (),
    known: Mapping[str, Narrow] | None = None,
) -> list[Chain]:
    """Chains that are estimated to be faster than their fusions one by one; no fusion is in two.

    ``narrow`` are the maps of bfloat16, ``known`` what each fusion knows of them: a strip is not converted.
    """
    found = [
        make_stage(i, fusion, graph, blocked, choices, target, narrow) for i, fusion in enumerate(fusions)
    ]
    stages = [stage for stage in found if stage is not None]
    readers = _find_readers(graph, fusions, views, stages, narrow, known or {})
    return [chain for path in _paths(stages, readers) for chain in _cut(path, target, threads)]


def report_chains(chains: Sequence[Chain], report: Report) -> None:
    """A ``Decision`` for each chain."""
    for chain in chains:
        names = ", ".join(describe(fusion.anchor) for fusion in chain.fusions)
        report.add(names, "plan", "strips", chain.reason)


def _find_readers(
    graph: Graph,
    fusions: Sequence[Fusion],
    views: Mapping[str, View],
    stages: Sequence[Stage],
    narrow: Collection[str],
    known: Mapping[str, Narrow],
) -> dict[int, Stage]:
    """The stage that alone reads the result of a stage, by the position of the latter; each reads one.

    A result that others need too is no strip: written whole, it would be read back from cache no
    faster than the prefetching kernels read it anyway (ResNet-50, MobileNetV2, 2026-11-21).
    """
    counts = Counter(name for fusion in fusions for name in fusion.reads)
    private = {
        stage.fusion.output: stage
        for stage in stages
        if counts[stage.fusion.output] == 1
        and stage.fusion.output not in graph.outputs
        and stage.fusion.output not in views
    }
    readers: dict[int, Stage] = {}
    for stage in stages:
        knows = known.get(stage.fusion.output, Narrow())
        taken = [name for name in stage.sources if knows.takes(name, name in narrow)]
        makers = [private[name] for name in taken if name in private]
        if makers:
            readers[max(maker.position for maker in makers)] = stage
    return readers


def _paths(stages: Sequence[Stage], readers: Mapping[int, Stage]) -> Iterator[list[Stage]]:
    """Stages that read one another."""
    reading = {stage.position for stage in readers.values()}
    for stage in stages:
        if stage.position in reading:
            continue
        path = [stage]
        while path[-1].position in readers:
            path.append(readers[path[-1].position])
        yield path


def _cut(path: Sequence[Stage], target: Target, threads: int) -> list[Chain]:
    """The chains of a path that save most."""
    best: list[tuple[float, list[Chain]]] = [(0.0, [])]  # of the first stages of the path
    for end in range(1, len(path) + 1):
        candidates = [best[end - 1]]
        for begin in range(max(end - MOST_MEMBERS, 0), end - 1):
            stages = path[begin:end]
            estimate = estimate_chain(stages, target, threads)
            if estimate.saved >= target.chain_gain:
                windows = tuple(stage.window for stage in stages)
                chain = Chain(tuple(stage.fusion for stage in stages), windows, estimate)
                saved, chains = best[begin]
                candidates.append((saved + estimate.saved, [*chains, chain]))
        best.append(max(candidates, key=lambda c: c[0]))
    return best[-1][1]
