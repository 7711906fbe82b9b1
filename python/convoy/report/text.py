"""A ``Report`` as text: what was folded, what is in which region, what was left and why."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from convoy.report.decision import (
    Decision,
    RegionReport,
    Report,
    count_of,
    format_flops,
    summarize,
)
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
    parts += [plain(""), _heading("Left to TVM"), *_left(report)]
    parts += [plain(""), plain(summarize(report))]
    return Group(*parts)


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


FEW_FLOPS = 1e-4
"""So small a part of the FLOPs of a network is no reason to change it."""


def _left(report: Report) -> list[RenderableType]:
    found = [(d.node, d.step, d.reason) for d in report.refusals]
    if not found:
        return _none()
    few = 1 - report.flops_share < FEW_FLOPS
    advice = (
        "They compute less than 0.01 % of the FLOPs, beside the regions: nothing needs to be done."
        if few
        else "A reason says what an op lacks to be taken; convoy profile says what time each takes."
    )
    return [_indent(_table(found)), _indent(plain(advice, "dim"))]


def _region(region: RegionReport, source: bool) -> list[RenderableType]:
    size = plain(
        f"{count_of(len(region.steps), 'step')}, {format_flops(region.flops)}, "
        f"weights {format_bytes(region.weight_bytes)}, arena {format_bytes(region.arena_bytes)}"
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


def format_bytes(number: int) -> str:
    """``3.0 MB``."""
    return f"{number / 2**20:.1f} MB" if number >= 2**20 else f"{number / 2**10:.1f} KB"


def _table(rows: Iterable[tuple[str, str, str]]) -> Sheet:
    table = Sheet.bare()
    for row in rows:
        table.add_row(*row)
    return table
