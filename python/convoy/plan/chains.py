"""Which groups run together strip by strip, by estimated time.  Every chain is a ``Decision``.

Groups that read one another's results form paths; a path is cut into chains where the estimates say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from convoy.graph.graph import Graph
from convoy.graph.rules import describe
from convoy.plan.algorithm import Choice
from convoy.plan.chain_cost import estimate_chain
from convoy.plan.fuse import Group
from convoy.plan.stage import Stage, make_stage
from convoy.plan.strips import MOST_MEMBERS, Chain
from convoy.plan.values import View
from convoy.report.decision import Report
from convoy.target import Target

MOST_OF_APART = 0.95
"""A chain has to promise more than the estimates may be wrong by."""


@dataclass(frozen=True)
class Link:
    """``reader`` takes the result of ``maker`` while it is in cache."""

    maker: Stage
    reader: Stage
    others: tuple[int, ...]
    """Positions of other groups that read the result."""
    kept: bool
    """The result is written whole, because it is needed elsewhere too."""


def choose_chains(
    graph: Graph,
    groups: Sequence[Group],
    blocked: Mapping[str, bool],
    views: Mapping[str, View],
    choices: Mapping[str, Choice],
    target: Target,
    threads: int,
) -> list[Chain]:
    """Chains that are estimated to be faster than their groups one by one; no group is in two."""
    found = [make_stage(i, group, graph, blocked, choices, target) for i, group in enumerate(groups)]
    stages = [stage for stage in found if stage is not None]
    links = _find_links(graph, groups, views, stages)
    return [chain for path in _paths(links) for chain in _cut(path, target, threads)]


def report_chains(chains: Sequence[Chain], graph: Graph, report: Report) -> None:
    """A ``Decision`` for each chain."""
    for chain in chains:
        names = ", ".join(describe(group.anchor) for group in chain.groups)
        report.add(names, "plan", "strips", chain.reason)


def _find_links(
    graph: Graph, groups: Sequence[Group], views: Mapping[str, View], stages: Sequence[Stage]
) -> dict[int, Link]:
    """At most one link from each stage, and one to each: by the position of the maker."""
    readers: dict[str, list[int]] = {}
    for i, group in enumerate(groups):
        for name in group.reads:
            readers.setdefault(name, []).append(i)
    makers = {stage.group.output: stage for stage in stages}
    links: dict[int, Link] = {}
    for stage in stages:
        candidates = (makers[name] for name in stage.sources if name in makers)
        for maker in sorted(candidates, key=lambda m: -m.position):
            name = maker.group.output
            others = tuple(i for i in readers[name] if i != stage.position)
            kept = bool(others) or name in graph.outputs or name in views
            if maker.position not in links and (stage.window.one_row or not kept):
                links[maker.position] = Link(maker, stage, others, kept)
                break
    return links


def _paths(links: Mapping[int, Link]) -> Iterator[list[Link]]:
    """Links that follow one another."""
    read = {link.reader.position for link in links.values()}
    for position in sorted(links.keys() - read):
        path = [links[position]]
        while path[-1].reader.position in links:
            path.append(links[path[-1].reader.position])
        yield path


def _cut(path: Sequence[Link], target: Target, threads: int) -> list[Chain]:
    """The chains of a path that save most."""
    count = len(path) + 1
    best: list[tuple[float, list[Chain]]] = [(0.0, [])]  # of the first stages of the path
    for end in range(1, count + 1):
        candidates = [best[end - 1]]
        for begin in range(max(end - MOST_MEMBERS, 0), end - 1):
            chain = _make_chain(path[begin : end - 1], target, threads)
            if chain is not None:
                saved, chains = best[begin]
                candidates.append((saved + chain.estimate.saved, [*chains, chain]))
        best.append(max(candidates, key=lambda c: c[0]))
    return best[-1][1]


def _make_chain(links: Sequence[Link], target: Target, threads: int) -> Chain | None:
    """The chain of all stages on ``links``, if they can form one and that is estimated to be faster."""
    stages = [links[0].maker, *(link.reader for link in links)]
    made = {stage.group.output for stage in stages}
    if any(made & set(_side_reads(link)) for link in links):
        return None
    for i, link in enumerate(links):
        if link.kept and not all(later.reader.window.one_row for later in links[i:]):
            return None  # two threads would write the rows where their shares meet
        if any(other <= stages[-1].position for other in link.others):
            return None  # a chain runs where its last group stood
    estimate = estimate_chain(stages, [link.kept for link in links], target, threads)
    if estimate.together > estimate.apart * MOST_OF_APART:
        return None
    kept = frozenset(link.maker.group.output for link in links if link.kept)
    return Chain(tuple(stage.group for stage in stages), kept, estimate)


def _side_reads(link: Link) -> Iterator[str]:
    """What the reader reads beside the maker's result."""
    return (name for name in link.reader.group.reads if name != link.maker.group.output)
