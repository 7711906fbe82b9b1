"""A ``Plan``: everything emit needs and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from convoy.graph.ops import Node
from convoy.graph.sizes import Symbol
from convoy.plan.buffers import Buffer
from convoy.plan.memory import Slot
from convoy.plan.recipes import Recipe
from convoy.plan.step import Step


@dataclass(frozen=True)
class Weight:
    """A packed constant: the buffer it lies in, and how it is made."""

    buffer: int
    recipe: Recipe


@dataclass(frozen=True)
class Plan:
    """A region, decided.  Two equal plans emit equal C, but for ``work``."""

    lanes: int
    threads: int
    """0: as many as the library is set to."""
    batch: int | None
    """Images of a call; None: known only at run time."""
    buffers: tuple[Buffer, ...]
    weights: tuple[Weight, ...]
    steps: tuple[Step, ...]
    barriers: tuple[bool, ...]
    """barriers[i]: the threads meet before step i."""
    alone: tuple[bool, ...]
    """alone[i]: one thread computes step i, the last to come to the barrier before it, or else thread 0."""
    inputs: tuple[int, ...]
    """Elements of one image of each input."""
    outputs: tuple[int, ...]
    arena_bytes: int
    weight_bytes: int
    thread_bytes: int
    """Size of each thread's own scratch."""
    batch_bytes: int
    """Size of each image's own memory."""
    batched: int
    """From this step on, a step computes all images before the next one begins (``plan/batch.py``)."""
    places_weights: bool
    """The weights move into huge pages when the library is loaded."""
    team_images: int
    """A call of fewer images is computed by its caller alone; at least 1."""
    sizes: tuple[Symbol, ...]
    """Those that are known at the call, in the order in which it is told them."""
    slots: tuple[Slot, ...]
    """Where they are any, the buffers of the arena: slot number i begins at ``at[i]``."""
    team_work: float
    """There, a call of less work is computed by its caller alone."""
    cycles: tuple[float, ...] = field(compare=False, repr=False)
    """Estimated, of each step: of the busiest thread."""
    work: float = field(compare=False, repr=False)
    """Cycles of one image on one core, as estimated: by which the runtime compares the speed of its calls.
    It changes no answer, and so is no part of what the plan is, nor of the region's name."""
    nodes: tuple[tuple[Node, ...], ...] = field(compare=False, repr=False)
    """What each step computes of the graph, alone or with those beside it; for reports, as ``work`` is."""

    @property
    def apart(self) -> bool:
        """Threads take images of their own where there is one for each, in an arena of their own."""
        return self.batch != 1 and self.batched > 0
