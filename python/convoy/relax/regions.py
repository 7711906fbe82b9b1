"""Growing convex regions over an acyclic graph.  Knows nothing of TVM.

A set of nodes is convex if no path leaves it and comes back: only then can it become one
function.  Two regions may be joined if the union still is.  The nodes are taken in running
order and each joins the regions it reads from or shares an operand with, so the result is
maximal: no two regions that touch could still be joined.

Source
------
The label-and-merge scheme of TVM's MergeCompilerRegions; here reachability is a bit set a node.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Region:
    """Nodes that go together, in running order; ``labels`` are what all of them allow."""

    nodes: tuple[int, ...]
    labels: frozenset[str]


def grow_regions(
    reads: Sequence[Sequence[int]],
    labels: Sequence[frozenset[str]],
    operands: Sequence[Sequence[Hashable]] = (),
    late: str = "",
) -> list[Region]:
    """Join nodes into maximal convex regions; returns them in an order they can run in.

    Parameters
    ----------
    reads : Sequence[Sequence[int]]
        reads[i] are the nodes, all before i, whose results node i reads.
    labels : Sequence[frozenset[str]]
        labels[i] are what node i allows; nodes join only while they have one in common; a node that
        allows nothing stays outside of every region, and is a Region of its own.
    operands : Sequence[Sequence[Hashable]]
        operands[i], any names of what node i reads from outside the graph or from nodes outside of
        regions; regions that read the same operand are joined too.
    late : str
        A label by which nodes join after all joins by others.
    """
    growing = _Growing(reads, labels)
    pairs = list(_find_pairs(reads, labels, operands))
    for without in (frozenset({late}), frozenset[str]()):
        for a, b in pairs:
            growing.join(a, b, without)
        # A join may have made room for another: repeat over the pairs that touch until none is left.
        touching = [(r, i) for i in range(len(reads)) if labels[i] for r in reads[i] if labels[r]]
        joined = -1
        while joined:
            joined = sum(growing.join(a, b, without) for a, b in touching)
    return list(growing.in_order())


def _find_pairs(
    reads: Sequence[Sequence[int]],
    labels: Sequence[frozenset[str]],
    operands: Sequence[Sequence[Hashable]],
) -> Iterator[tuple[int, int]]:
    """Nodes to join, in running order."""
    readers: dict[Hashable, list[int]] = {}
    for node in range(len(reads)):
        if not labels[node]:
            continue
        near: list[int] = list(reads[node])
        for operand in operands[node] if operands else ():
            near += readers.get(operand, [])
            readers.setdefault(operand, []).append(node)
        yield from ((other, node) for other in near)


class _Growing:
    """Regions while they grow, each known by the number of its first node."""

    def __init__(self, reads: Sequence[Sequence[int]], labels: Sequence[frozenset[str]]) -> None:
        count = len(reads)
        self.reads = reads
        self.region = list(range(count))
        self.alive = set(range(count))
        self.members = [1 << i for i in range(count)]
        """Nodes of each region, as bits."""
        self.labels = list(labels)
        self.users = [0] * count
        """Nodes that read a region's results directly, as bits."""
        self.below = [0] * count
        """Everything that must run after a node, as bits: what is reachable from its region."""
        for node in reversed(range(count)):
            for source in reads[node]:
                self.users[source] |= 1 << node
                self.below[source] |= 1 << node | self.below[node]

    def join(self, a: int, b: int, without: frozenset[str] = frozenset()) -> bool:
        """Join the regions of two nodes if they may be by another label; tells whether they just were."""
        a, b = self.region[a], self.region[b]
        labels = self.labels[a] & self.labels[b]
        if a == b or not labels - without or self._path_outside(a, b) or self._path_outside(b, a):
            return False
        if b < a:
            a, b = b, a
        self.members[a] |= self.members[b]
        self.users[a] |= self.users[b]
        self.labels[a] = labels
        for node in _bits(self.members[b]):
            self.region[node] = a
        inside = self.members[a]
        below = (self.below[a] | self.below[b]) & ~inside
        self.below[a] = below
        self.alive.discard(b)
        for region in self.alive:
            if region != a and self.below[region] & inside:
                self.below[region] |= inside | below
        return True

    def _path_outside(self, a: int, b: int) -> bool:
        """Is there a path from a to b through a third region?"""
        outside = self.users[a] & ~self.members[a] & ~self.members[b]
        return any(self.below[self.region[node]] & self.members[b] for node in _bits(outside))

    def in_order(self) -> Iterator[Region]:
        """The regions in an order they can run in, as near to the nodes' own as can be."""
        done: set[int] = set()

        for start in range(len(self.region)):
            stack = [] if self.region[start] in done else [self.region[start]]
            while stack:
                region = stack[-1]
                needed = {self.region[r] for n in _bits(self.members[region]) for r in self.reads[n]}
                waiting = sorted(needed - done - {region}, reverse=True)
                if region in done or not waiting:
                    stack.pop()
                    if region not in done:
                        done.add(region)
                        yield Region(tuple(_bits(self.members[region])), self.labels[region])
                else:
                    stack += waiting


def _bits(value: int) -> Iterator[int]:
    while value:
        low = value & -value
        yield low.bit_length() - 1
        value ^= low
