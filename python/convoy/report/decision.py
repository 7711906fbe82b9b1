"""Decisions: every choice and every refusal on the road, as data.

``explain`` prints them, strict mode raises the first refusal, tests compare them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Literal

from convoy.text import line

RoadStep = Literal["import", "fold", "annotate", "partition", "plan"]


@dataclass(frozen=True)
class Decision:
    """One choice made about one node.

    ``choice`` is ``"taken"``, ``"left"`` (a refusal: the op stays with TVM) or what a
    step chose instead, such as ``"folded"`` or the name of an algorithm.
    """

    node: str
    """The op and its name in the model, e.g. ``conv2d resnetv24_conv0``."""
    step: RoadStep
    choice: str
    reason: str
    """In words, for the user: ``expected a constant weight, got a parameter``."""
    cost: float | None = None
    """Estimated seconds, where the planner made an estimate."""

    @property
    def refused(self) -> bool:
        return self.choice == "left"

    def __str__(self) -> str:
        return line(f"{self.step}: {self.node}: {self.choice}: {self.reason}")


@dataclass
class Report:
    """What one compilation did, filled while it runs."""

    decisions: list[Decision] = field(default_factory=list)
    regions: list[RegionReport] = field(default_factory=list)
    flops_total: int = 0
    flops_offloaded: int = 0

    def add(self, node: str, step: RoadStep, choice: str, reason: str, cost: float | None = None) -> None:
        self.decisions.append(Decision(node, step, choice, reason, cost))

    def extend(self, other: Report) -> None:
        """Take in what another report has."""
        self.decisions += other.decisions
        self.regions += other.regions
        self.flops_total += other.flops_total
        self.flops_offloaded += other.flops_offloaded

    @property
    def refusals(self) -> list[Decision]:
        return [d for d in self.decisions if d.refused]

    @property
    def flops_share(self) -> float:
        """Offloaded part of the module's FLOPs, 0 to 1 (1 for a module without any)."""
        return self.flops_offloaded / self.flops_total if self.flops_total else 1.0

    def as_dict(self) -> dict[str, object]:
        """Plain data for ``explain --json``."""
        return {**asdict(self), "flops_share": self.flops_share}


@dataclass(frozen=True)
class RegionReport:
    """One external function: what is in it and how it is computed."""

    symbol: str
    steps: tuple[str, ...] = ()
    """One line per kernel, in the order they run."""
    kinds: tuple[str, ...] = ()
    """The algorithm of each, or its op."""
    ops: tuple[str, ...] = ()
    """The op of each."""
    estimates: tuple[float, ...] = ()
    """Estimated seconds of each, on the machine the planner's model was measured on."""
    arena_bytes: int = 0
    """Scratch memory of a call, that of each thread included."""
    weight_bytes: int = 0
    flops: int = 0
    source: str = ""
    """The generated C."""
    machine: str = ""
    """Where the figures of the machine it is planned for are from; empty: from its row."""
