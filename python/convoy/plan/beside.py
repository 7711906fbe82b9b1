"""Fusions that run side by side, as the two directions of a recurrent layer, and the order they need."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

from convoy.plan.fuse import Fusion

Alike = Callable[[Fusion, Fusion], bool]
"""Whether two fusions may run side by side, if neither reads the other, however far apart."""


def bring_together(
    fusions: Sequence[Fusion], most: int, alike: Alike
) -> tuple[list[Fusion], list[tuple[Fusion, ...]]]:
    """The fusions in an order in which those that run side by side follow one another, and which these are.

    Parameters
    ----------
    fusions : Sequence[Fusion]
        In running order.
    most : int
        So many run side by side, at most.
    alike : Alike
        Which of them may.

    Returns
    -------
    tuple[list[Fusion], list[tuple[Fusion, ...]]]
        All fusions, with what each group reads in front of it, and the groups: of two and more.
    """
    ordered = list(fusions)
    groups: list[tuple[Fusion, ...]] = []
    grouped: set[str] = set()
    for first in fusions:
        if first.output in grouped or not alike(first, first):
            continue
        begin = ordered.index(first)
        group = _find_group(ordered[begin:], most, alike, grouped)
        if len(group) > 1:
            end = ordered.index(group[-1]) + 1
            ordered[begin:end] = _gather(group, ordered[begin:end])
            groups.append(tuple(group))
            grouped.update(fusion.output for fusion in group)
    return ordered, groups


def _find_group(
    fusions: Sequence[Fusion], most: int, alike: Alike, grouped: Container[str]
) -> list[Fusion]:
    """The first fusion and those like it that read nothing that comes of the group."""
    group = [fusions[0]]
    behind = _made(fusions[0])
    for fusion in fusions[1:]:
        if len(group) == most:
            break
        if not behind.isdisjoint(fusion.reads):
            behind |= _made(fusion)
        elif fusion.output not in grouped and alike(group[0], fusion):
            group.append(fusion)
            behind |= _made(fusion)
    return group


def _gather(group: Sequence[Fusion], stretch: Sequence[Fusion]) -> list[Fusion]:
    """A stretch from the first of the group to the last: what the group reads, the group, and the rest."""
    needed = {name for fusion in group for name in fusion.reads}
    members = {fusion.output for fusion in group}
    ahead: list[Fusion] = []
    rest: list[Fusion] = []
    for fusion in reversed(stretch):
        if fusion.output in members:
            continue
        if needed.isdisjoint(_made(fusion)):
            rest.append(fusion)
        else:
            ahead.append(fusion)
            needed.update(fusion.reads)
    return [*reversed(ahead), *group, *reversed(rest)]


def _made(fusion: Fusion) -> set[str]:
    return {node.output for node in fusion.nodes}
