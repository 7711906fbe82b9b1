"""Decisions: every choice and every refusal on the road, as data.

``explain`` prints them, strict mode raises the first refusal, tests compare them, and ``logging`` has
them under the name ``convoy``, at the level DEBUG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal

from convoy.log import log_detail
from convoy.text import html_rows, line

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
    about: tuple[str, ...] = ()
    """Other ops that it speaks of: what a node was folded into, or the op of the model it was made from."""

    @property
    def refused(self) -> bool:
        return self.choice == "left"

    def __str__(self) -> str:
        return line(f"{self.step}: {self.node}: {self.choice}: {self.reason}")


@dataclass(repr=False)
class Report:
    """What one compilation did, filled while it runs."""

    decisions: list[Decision] = field(default_factory=list)
    regions: list[RegionReport] = field(default_factory=list)
    flops_total: int = 0
    flops_offloaded: int = 0
    calls: list[CallDetail] = field(default_factory=list)
    """What is left of the network after partitioning, in running order."""

    def add(
        self,
        node: str,
        step: RoadStep,
        choice: str,
        reason: str,
        cost: float | None = None,
        about: Iterable[str] = (),
    ) -> None:
        self.decisions.append(Decision(node, step, choice, reason, cost, tuple(about)))
        log_detail(self.decisions[-1])

    def extend(self, other: Report) -> None:
        """Take in what another report has."""
        self.decisions += other.decisions
        self.regions += other.regions
        self.calls += other.calls
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

    def __repr__(self) -> str:
        return f"<Report: {summarize(self)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary, what was left and why, and the regions."""
        left = html_rows(("left to TVM", "op", "why"), group_refusals(self))
        regions = html_rows(
            ("region", "kernels", "FLOPs", "weights, bytes", "scratch, bytes"),
            ((r.symbol, len(r.steps), r.flops, r.weight_bytes, r.arena_bytes) for r in self.regions),
        )
        return f"<p>{line(summarize(self))}</p>{left}{regions}"


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
    source: str = field(default="", repr=False)
    """The generated C."""
    machine: str = ""
    """Where the figures of the machine it is planned for are from; empty: from its row."""
    batch: int | None = 1
    """Images of a call; None: as many as it is called with."""
    roof: Roof | None = None
    """As the machine's row has it."""
    details: tuple[StepDetail, ...] = ()
    """More of each step."""
    arena: tuple[Held, ...] = ()
    """Who lies where in the part of the arena that the steps of one image share."""


@dataclass(frozen=True)
class Roof:
    """The most that all threads of a machine can do."""

    flops: float
    """FLOP/s of multiply-adds."""
    memory: float
    """Bytes/s from memory."""
    cache: float
    """Bytes/s from L2."""


@dataclass(frozen=True)
class StepDetail:
    """What one step of a region computes and moves, for one image."""

    nodes: tuple[str, ...]
    """The ops it computes, with their names in the model: ``conv2d resnetv24_conv0``."""
    sources: tuple[int, ...]
    """Steps whose results it reads; -1 - i is input i of the region."""
    results: tuple[int, ...]
    """Outputs of the region that it writes."""
    shape: tuple[int, ...]
    """The shape of what it makes."""
    dtype: str
    precision: str
    """What its products are made in: float32 or bf16."""
    tiling: str
    flops: int
    """By the definition of its ops."""
    products: float
    """The share of these that its algorithm computes: 0.25 with Winograd F(4x4, 3x3)."""
    at_once: int
    """Products of its precision in the time of one of float32, at best."""
    bytes: int
    """Read and written, weights included, scratch not."""


@dataclass(frozen=True)
class Held:
    """Memory of the arena that is in use from one step to another."""

    maker: str
    """The step that writes it first."""
    offset: int
    bytes: int
    first: int
    last: int
    """Numbers of steps, from 0."""


@dataclass(frozen=True)
class CallDetail:
    """One call after partitioning, of a region or of an op that TVM computes; or a parameter."""

    function: str
    """Where it stands: ``main``."""
    name: str
    """Its result's, after the function's: ``main: gemm0``."""
    node: str
    """The op and its name in the model; of a region the last one's; of a parameter none."""
    region: str
    """The symbol of the region it calls; empty: an op that was left."""
    reads: tuple[str, ...]
    """Names of results and parameters; ``main: lv[1]``: of several results the second."""
    results: tuple[tuple[str, str], ...]
    """Shape and type of each result: ``1×3×224×224``, ``float32``."""


def summarize(report: Report) -> str:
    """One line: ops taken and left, regions, the share of FLOPs offloaded."""
    taken, left = count_ops(report)
    regions = count_of(len(report.regions), "region")
    return (
        f"{count_of(taken, 'op')} offloaded in {regions}, {left} left to TVM; "
        f"{100 * report.flops_share:.2f} % of {format_flops(report.flops_total)} offloaded"
    )


def count_ops(report: Report) -> tuple[int, int]:
    """How many ops were offloaded, and how many were left."""
    taken = sum(1 for d in report.decisions if d.choice == "taken")
    return taken, len(report.refusals)


def group_refusals(report: Report) -> list[tuple[int, str, str]]:
    """Refusals by op and reason, most frequent first: (how many, op, reason)."""
    counted = Counter((op_of(d), d.reason) for d in report.refusals)
    return [(count, op, reason) for (op, reason), count in counted.most_common()]


def op_of(decision: Decision) -> str:
    """The op of a decision's node: ``conv2d resnetv24_conv0`` is a ``conv2d``."""
    return decision.node.split(" ", 1)[0]


def count_of(number: int, what: str) -> str:
    """``1 op``, ``2 ops``."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def name_nodes(nodes: Sequence[str]) -> str:
    """The names of ops in one line; of those that only make bytes or floats, where there are no others."""
    named = [node for node in nodes if node.partition(" ")[0] not in ("quantize", "dequantize")]
    return ", ".join(named or nodes)


def format_flops(number: int) -> str:
    """``7.72 GFLOP``."""
    return f"{number / 1e9:.2f} GFLOP" if number >= 1e8 else f"{number / 1e6:.2f} MFLOP"
