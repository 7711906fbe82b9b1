"""Which maps of a region are stored in bfloat16, where its target multiplies that (``Target.bfloat16``).

What kernels compute is float32 all the same, but for the products of those that say so.  A map is narrow
where all that make it know the type, and some reader multiplies it, or all read it as it is.  Who reads it
otherwise gets a copy of the other type.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from convoy.graph.graph import Graph
from convoy.graph.sizes import is_open
from convoy.plan.fuse import Fusion
from convoy.plan.maps import image_shape

Root = Callable[[str], str]
"""The tensor whose memory holds another."""


@dataclass(frozen=True)
class Narrow:
    """What the kernel of a fusion knows of bfloat16."""

    reads: tuple[str, ...] = ()
    """Maps that it reads in either type."""
    multiplies: tuple[str, ...] = ()
    """Those it has to have in bfloat16."""
    makes: bool = False
    """It makes its result in either type."""

    def takes(self, name: str, narrow: bool) -> bool:
        """Whether it reads a tensor as it was made."""
        return name in (*self.reads, *self.multiplies) if narrow else name not in self.multiplies


def choose_narrow(
    graph: Graph,
    fusions: Sequence[Fusion],
    blocked: Mapping[str, bool],
    known: Mapping[str, Narrow],
    root: Root,
) -> frozenset[str]:
    """The tensors that are made as maps of bfloat16.

    Tensors in one memory, as the operands of a concat are, have one type.

    Parameters
    ----------
    known : Mapping[str, Narrow]
        Of each fusion, by its output.
    """
    makers: dict[str, list[bool]] = defaultdict(list)
    readers: dict[str, list[str]] = defaultdict(list)
    for fusion in fusions:
        own, knows = root(fusion.output), known[fusion.output]
        makers[own].append(blocked[fusion.output] and (knows.makes and _is_wide(fusion.output, graph)))
        for name in fusion.reads:
            if name not in graph.constants and not (root(name) == own and knows.makes):
                how = "all" if name in knows.reads else "other"
                readers[root(name)].append("wants" if name in knows.multiplies else how)
    chosen = {
        name
        for name, made in makers.items()
        if all(made) and ("wants" in readers[name] or set(readers[name]) == {"all"})
    }
    return frozenset(fusion.output for fusion in fusions if root(fusion.output) in chosen)


def _is_wide(name: str, graph: Graph) -> bool:
    """Whether a map has more than a pixel a channel: else a row-major tensor may be it."""
    shape = image_shape(graph.shape(name))
    return (
        graph.dtype(name) == "float32" and shape is not None and (is_open(shape[1:]) or shape[1:] != (1, 1))
    )
