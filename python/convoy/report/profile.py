"""A ``Profile``: where the time of a run goes, part by part, and how much of it is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from convoy.report.decision import Report, Roof, count_of, name_nodes
from convoy.text import html_rows, line

Kind = Literal["step", "kernel", "runtime", "team"]
"""step: of a region; kernel: of TVM's; runtime: TVM's virtual machine, its memory and shapes, and its call
from Python; team: entering regions and leaving them, threads being woken."""


@dataclass(frozen=True)
class Part:
    """One thing that takes time in a run.  Times are means over the runs that count, in seconds."""

    kind: Kind
    where: str
    """The region's symbol, or the function that TVM calls."""
    step: int
    """Its number in the region, from 0; -1: it is no step."""
    text: str
    """What it computes."""
    kernel: str
    """Its algorithm, or its op where there is only one; TVM's function."""
    nodes: tuple[str, ...]
    """The ops it computes, with their names in the model."""
    results: tuple[str, ...]
    """What a kernel of TVM's makes, by the names in ``Report.calls``."""
    seconds: float
    """On the clock of the run: from when the caller begins it to when the caller goes on."""
    busy: tuple[float, ...] = ()
    """What each thread that takes part computes."""
    estimate: float | None = None
    """The planner's, at the speed that the machine had."""
    flops: int = 0
    """By the definition of its ops, of all images."""
    products: float = 1.0
    """The share of these that its algorithm computes."""
    at_once: int = 1
    """Products of its precision in the time of one of float32, at best."""
    bytes: int = 0
    """Read and written, weights included, of all images."""

    @property
    def balance(self) -> float | None:
        """What threads compute, on average, of what the busiest one does."""
        most = max(self.busy, default=0.0)
        return sum(self.busy) / len(self.busy) / most if most else None

    @property
    def rate(self) -> float | None:
        """FLOP/s."""
        return self.flops / self.seconds if self.flops and self.seconds else None

    def share_of_roof(self, roof: Roof) -> float | None:
        """The least time that its products, or its bytes from L2, take on this machine, over its time.

        More than 1 where its operands lie nearer than L2, or the machine was faster than its figures.
        """
        least = max(self.flops * self.products / self.at_once / roof.flops, self.bytes / roof.cache)
        return least / self.seconds if least and self.seconds else None


@dataclass(frozen=True)
class Span:
    """Something that happened on one thread, in one of the runs that count."""

    part: int
    """Which part, by its place in the profile."""
    thread: int
    begin: float
    end: float
    """Seconds from the beginning of the run."""


@dataclass(frozen=True)
class Profile:
    """Where the time of a run goes."""

    model: str
    threads: int
    parts: tuple[Part, ...]
    """In running order; those of TVM's virtual machine last."""
    seconds: float
    """A run that is listened to: the mean of the fastest quarter, which ``parts`` are means of, too."""
    plain: float
    """A run while nobody listens: the mean of the fastest quarter."""
    runs: int
    """While nobody listens."""
    every: int
    """One run in how many is listened to; 1: each, beside those it is compared with."""
    roof: Roof
    """The most this machine did meanwhile; L2 as its row says, at the speed it had."""
    spans: tuple[Span, ...]
    report: Report

    @property
    def slowdown(self) -> float:
        """What listening costs, of the time of all runs."""
        return (self.seconds / self.plain - 1) / self.every

    @property
    def accounted(self) -> float:
        """The part of the time that is some part's, 0 to 1."""
        return sum(part.seconds for part in self.parts) / self.seconds

    def __repr__(self) -> str:
        taken = f"{1e3 * self.plain:.4g} ms a run, {count_of(len(self.parts), 'part')}"
        return line(f"<Profile: {self.model}: {taken}, {100 * self.accounted:.1f} % accounted for>")

    def _repr_html_(self) -> str:
        """What a notebook shows: the summary, and the parts in running order."""
        rows = (
            (
                name_nodes(p.nodes) or p.text,
                p.kernel,
                f"{1e3 * p.seconds:.4f}",
                f"{p.seconds / self.seconds:.1%}",
            )
            for p in self.parts
        )
        summary = html_rows((repr(self)[1:-1],), [()])
        return summary + html_rows(("what", "kernel", "ms", "of the run"), rows)

    def share_of(self, kind: Kind) -> float:
        """The part of the time that parts of a kind take, 0 to 1."""
        return sum(part.seconds for part in self.parts if part.kind == kind) / self.seconds

    def as_dict(self) -> dict[str, object]:
        """Plain data, for ``profile --json``."""
        parts = [
            {**asdict(p), "balance": p.balance, "rate": p.rate, "share_of_roof": p.share_of_roof(self.roof)}
            for p in self.parts
        ]
        names = ("model", "threads", "seconds", "plain", "slowdown", "runs", "every", "accounted")
        own = {name: getattr(self, name) for name in names}
        return {**own, "roof": asdict(self.roof), "parts": parts}

    def trace(self) -> dict[str, object]:
        """One run in Chrome's trace format, for Perfetto or chrome://tracing."""
        return {"displayTimeUnit": "ms", "traceEvents": [*self._threads(), *map(self._event, self.spans)]}

    def _threads(self) -> Sequence[dict[str, object]]:
        return [
            {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": name}}
            for thread in sorted({span.thread for span in self.spans})
            for name in [f"thread {thread}" if thread else "caller"]
        ]

    def _event(self, span: Span) -> dict[str, object]:
        part = self.parts[span.part]
        return {
            "ph": "X", "pid": 1, "tid": span.thread, "cat": part.kind,
            "name": name_nodes(part.nodes) or part.text,
            "ts": 1e6 * span.begin, "dur": 1e6 * (span.end - span.begin),
            "args": {
                "what": part.text, "kernel": part.kernel, "where": part.where, "nodes": list(part.nodes),
                "estimated ms": None if part.estimate is None else 1e3 * part.estimate,
            },
        }  # fmt: skip
