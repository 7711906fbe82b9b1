"""What every kind of kernel tells of itself: a row of ``registry.KERNELS``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from convoy.codegen.writer import Writer
from convoy.graph.dtypes import DType
from convoy.graph.graph import Graph
from convoy.graph.ops import Node
from convoy.kernels.conv2d.choose import Choice
from convoy.kernels.precision import Narrow
from convoy.kernels.strips.window import Window
from convoy.kernels.values import Values
from convoy.options import Options
from convoy.plan.fuse import Fusion
from convoy.plan.step import Step
from convoy.target import Target

Planner = Callable[[Fusion, Values], Iterator[Step]]
"""Gives the steps of a fusion, in order.  What it asks of ``values`` before it gives a step (a tensor in
another layout) comes before that step."""

WantsMap = Callable[[Fusion, Graph, Mapping[str, bool]], bool]
"""Whether a fusion's result is made as a blocked map; the mapping says it of all tensors before."""


def always(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    """A kernel that knows maps only."""
    return True


def never(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    """A kernel that knows row-major tensors only."""
    return False


def follows(fusion: Fusion, graph: Graph, blocked: Mapping[str, bool]) -> bool:
    """A kernel that knows both: as an image whose inputs have a map among them."""
    shape = graph.shape(fusion.output)
    return len(shape) == 4 and shape[0] == 1 and any(blocked.get(name) for name in fusion.reads)


@dataclass(frozen=True)
class Membership:
    """What a fusion reads and costs as the member of a chain (``kernels/strips``), without its epilogue."""

    window: Window
    x: str
    """The tensor that is as large as its input."""
    reads: tuple[str, ...]
    """Inputs that another member may make row by row."""
    row_cycles: float
    """To compute a row of the result in a strip."""
    whole_cycles: float = inf
    """To compute all of it by itself, where it need not go row by row."""
    weight_bytes: int = 0


Member = Callable[[Fusion, Graph, Mapping[str, Choice], Target], Membership | None]
"""None where a fusion's kernel cannot go row by row."""


KnowsNarrow = Callable[[Fusion, Graph, Mapping[str, Choice]], Narrow]
"""What a fusion's kernel knows of bfloat16."""


def knows_none(fusion: Fusion, graph: Graph, choices: Mapping[str, Choice]) -> Narrow:
    """A kernel of float32 alone."""
    return Narrow()


def stores(fusion: Fusion, graph: Graph, choices: Mapping[str, Choice]) -> Narrow:
    """A kernel that reads and writes maps of either type, and computes in float32."""
    return Narrow(reads=fusion.reads, makes=True)


KnowsBytes = Callable[[Fusion, Graph, Target, int, Options], bool]
"""Whether a kernel of bytes computes a fusion that swallowed what quantises around it, and is estimated to
be faster than one of floats; the number is that of threads."""


@dataclass(frozen=True)
class KernelKind:
    """One kind of kernel.

    One that knows bytes is a row of its own, beside that of floats for the same nodes.
    """

    nodes: tuple[type[Node], ...] = ()
    """The anchors it computes; none for a kernel whose steps others make."""
    plan: Planner | None = None
    emitters: Mapping[type[Step], Callable[[Any, Writer], str]] = field(default_factory=dict)
    """How each of its steps is written."""
    wants_map: WantsMap = never
    dtypes: frozenset[DType] = frozenset({"float32"})
    """The element types of tensors it reads and makes."""
    takes_bytes: KnowsBytes | None = None
    """Set in a row of fusions of bytes (``plan.fuse.Fusion.of_bytes``): those it computes.  Its planner
    reads ``Fusion.source`` of a name, and makes ``Fusion.output``."""
    narrow: KnowsNarrow = knows_none
    member: Member | None = None
    """For fusions whose result is a blocked map; no kernel without it is in a chain."""
    plan_member: Planner | None = None
    """Its steps as the member of a chain, the last of which runs strip by strip (``kernels/strips``)."""
