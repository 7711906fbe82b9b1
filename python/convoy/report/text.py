"""A ``Report`` as text: what was folded, what is in which region, what was left and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from convoy.report.decision import Decision, RegionReport, Report
from convoy.report.sheet import Sheet, block, plain


def describe_report(report: Report, *, source: bool = False) -> Group:
    """The whole report, for a terminal.

    Parameters
    ----------
    source : bool
        Print the generated C of every region too.
    """
    parts: list[RenderableType] = [_heading("Folded before partitioning"), *_folded(report.decisions)]
    for region in report.regions:
        parts += [plain(""), _heading(f"Region {region.symbol}"), *_region(region, source)]
    parts += [plain(""), _heading("Chosen by the planner"), *_chosen(report.decisions)]
    parts += [plain(""), _heading("Left to TVM"), *_left(report.refusals)]
    parts += [plain(""), plain(summarize(report))]
    return Group(*parts)


def summarize(report: Report) -> str:
    """One line: ops taken and left, regions, the share of FLOPs offloaded."""
    taken, left = count_ops(report)
    return (
        f"{_count(taken, 'op')} offloaded in {_count(len(report.regions), 'region')}, {left} left to TVM; "
        f"{100 * report.flops_share:.2f} % of {_flops(report.flops_total)} offloaded"
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


def _heading(text: str) -> Text:
    return plain(text, "bold")


def _indent(renderable: RenderableType) -> Padding:
    return Padding(renderable, (0, 0, 0, 2))


def _none() -> list[RenderableType]:
    return [_indent(plain("nothing", "dim"))]


def _folded(decisions: Iterable[Decision]) -> list[RenderableType]:
    found = [d for d in decisions if d.step in ("import", "fold") and not d.refused]
    return [_indent(_table((d.node, d.choice, d.reason) for d in found))] if found else _none()


def _chosen(decisions: Iterable[Decision]) -> list[RenderableType]:
    found = [d for d in decisions if d.step == "plan" and not d.refused]
    return [_indent(_table((d.node, d.choice, d.reason) for d in found))] if found else _none()


def _left(refusals: Iterable[Decision]) -> list[RenderableType]:
    found = [(d.node, d.step, d.reason) for d in refusals]
    return [_indent(_table(found))] if found else _none()


def _region(region: RegionReport, source: bool) -> list[RenderableType]:
    size = plain(
        f"{_count(len(region.steps), 'step')}, {_flops(region.flops)}, "
        f"weights {_bytes(region.weight_bytes)}, arena {_bytes(region.arena_bytes)}"
        + (f"; machine: {region.machine}" if region.machine else "")
    )
    steps = Sheet.bare()
    for number, (step, estimate) in enumerate(zip(region.steps, region.estimates, strict=True), 1):
        steps.add_row(
            plain(str(number), "dim", "right"), plain(f"~{1e3 * estimate:.3f} ms", "dim", "right"), step
        )
    parts: list[RenderableType] = [_indent(size), _indent(steps)]
    if source and region.source:
        parts.append(block(region.source))
    return parts


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _flops(number: int) -> str:
    return f"{number / 1e9:.2f} GFLOP" if number >= 1e8 else f"{number / 1e6:.2f} MFLOP"


def _bytes(number: int) -> str:
    return f"{number / 2**20:.1f} MB" if number >= 2**20 else f"{number / 2**10:.1f} KB"


def _table(rows: Iterable[tuple[str, str, str]]) -> Sheet:
    table = Sheet.bare()
    for row in rows:
        table.add_row(*row)
    return table
