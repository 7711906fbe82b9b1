"""What is on the page of a compilation, and of a profile: nodes, edges, regions, what was left, roofs."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from convoy.report.decision import CallDetail, Decision, RegionReport, Report, Roof, name_nodes, summarize
from convoy.report.profile import Part, Profile
from convoy.report.profile_text import summarize_profile

_ITEM = re.compile(r"(.*)\[(\d+)\]")
"""A name of one of several results."""


def explain_content(report: Report, model: str) -> dict[str, Any]:
    """What is on the page of a compilation."""
    roof = next((region.roof for region in report.regions), None)
    return _content(report, model, [summarize(report)], roof, {}, [])


def profile_content(profile: Profile) -> dict[str, Any]:
    """What is on the page of a profile."""
    measured: dict[tuple[str, int] | str, Part] = {}
    besides = []
    for part in profile.parts:
        if part.kind == "step":
            measured[part.where, part.step] = part
        elif len(part.results) == 1:
            measured[part.results[0]] = part
        else:
            besides.append({"text": part.text, "measured": part.seconds})
    lines = [summarize(profile.report), *summarize_profile(profile)]
    return _content(profile.report, profile.model, lines, profile.roof, measured, besides)


def _content(
    report: Report,
    model: str,
    summary: Sequence[str],
    roof: Roof | None,
    measured: Mapping[tuple[str, int] | str, Part],
    besides: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    drawing = _Drawing(report, measured, roof)
    return {
        "title": model,
        "summary": list(summary),
        "left": _describe_left(report),
        "nodes": drawing.nodes,
        "edges": drawing.edges,
        "besides": list(besides),
        "regions": [
            {
                "symbol": region.symbol,
                "steps": list(region.steps),
                "arena": region.arena_bytes,
                "weights": region.weight_bytes,
                "flops": region.flops,
                "machine": region.machine,
                "held": [asdict(held) for held in region.arena],
            }
            for region in report.regions
        ],
        "roof": asdict(roof) if roof else None,
        "engines": [],
    }


def _describe_left(report: Report) -> list[dict[str, Any]]:
    """What was left to TVM, by reason, the most frequent first."""
    nodes: dict[str, list[str]] = defaultdict(list)
    for decision in report.refusals:
        nodes[decision.reason].append(decision.node)
    ordered = sorted(nodes.items(), key=lambda row: -len(row[1]))
    return [{"reason": reason, "nodes": names} for reason, names in ordered]


class _Drawing:
    """The nodes and edges of a network: steps of regions, ops of TVM's, and what comes in."""

    def __init__(
        self, report: Report, measured: Mapping[tuple[str, int] | str, Part], roof: Roof | None
    ) -> None:
        self.nodes: list[dict[str, Any]] = []
        self.edges: list[tuple[str, str]] = []
        self._regions = {region.symbol: region for region in report.regions}
        self._measured, self._roof = measured, roof
        self._decisions = _by_node(report.decisions)
        self._makers: dict[str, list[str]] = {}
        """The nodes that make a result, by its name, and by name and item."""
        for call in report.calls or _calls_of(report.regions):
            if not call.node and not call.region:
                self._add_input(call.name, *(call.results[0] if call.results else ()))
            elif call.region in self._regions:
                self._add_region(call, self._regions[call.region])
            else:
                self._add_op(call)

    def _add_op(self, call: CallDetail) -> None:
        shape, dtype = call.results[0] if call.results else ("", "")
        part = self._measured.get(call.name)
        self._add(
            call.name, kind="tvm", label=call.node, kernel="TVM", region="", ops=[call.node],
            text=call.node, shape=shape, dtype=dtype, measured=part and part.seconds,
        )  # fmt: skip
        self._connect([source for name in call.reads for source in self._sources(name)], call.name)
        self._makers[call.name] = [call.name]

    def _add_region(self, call: CallDetail, region: RegionReport) -> None:
        functions = _cut_functions(region.source)
        for i, (text, detail) in enumerate(zip(region.steps, region.details, strict=True)):
            own = f"{call.name}/{i}"
            part = self._measured.get((region.symbol, i))
            estimate = region.estimates[i] if part is None else part.estimate
            taken = part.seconds if part else estimate or 0.0
            flops, moved = (part.flops, part.bytes) if part else (detail.flops, detail.bytes)
            least = 0.0
            if self._roof:
                least = max(
                    flops * detail.products / detail.at_once / self._roof.flops, moved / self._roof.cache
                )
            self._add(
                own, kind="step", label=name_nodes(detail.nodes) or text, kernel=region.kinds[i],
                region=region.symbol, step=i, ops=list(detail.nodes), text=text, tiling=detail.tiling,
                shape="×".join(map(str, detail.shape)), dtype=detail.dtype, estimate=estimate,
                measured=part and part.seconds, balance=part and part.balance, flops=flops, bytes=moved,
                products=detail.products, at_once=detail.at_once,
                share=least / taken if taken and least else None, source=functions.get(i, ""),
            )  # fmt: skip
            sources = [f"{call.name}/{s}" for s in detail.sources if s >= 0]
            for s in detail.sources:
                if s < 0 and -1 - s < len(call.reads):
                    sources += self._sources(call.reads[-1 - s])
            self._connect(sources, own)
            for result in detail.results:
                self._makers.setdefault(f"{call.name}[{result}]", []).append(own)
                self._makers.setdefault(call.name, []).append(own)

    def _sources(self, name: str) -> list[str]:
        """The nodes that make a result; what nothing makes comes in."""
        if name in self._makers:
            return self._makers[name]
        item = _ITEM.fullmatch(name)
        if item and item[1] in self._makers:
            return self._makers[item[1]]
        self._add_input(name)
        return [name]

    def _add_input(self, name: str, shape: str = "", dtype: str = "") -> None:
        self._add(
            name, kind="input", label=name, kernel="", region="", ops=[], text=name, shape=shape,
            dtype=dtype,
        )  # fmt: skip
        self._makers[name] = [name]

    def _add(self, own: str, **given: Any) -> None:
        found = {str(d): d for op in given["ops"] for d in self._decisions.get(op, ())}
        decisions = [
            {"step": d.step, "node": d.node, "choice": d.choice, "reason": d.reason} for d in found.values()
        ]
        self.nodes.append({"id": own, "decisions": decisions, **given})

    def _connect(self, sources: Sequence[str], own: str) -> None:
        self.edges += [(source, own) for source in dict.fromkeys(sources)]


def _by_node(decisions: Sequence[Decision]) -> dict[str, list[Decision]]:
    """The decisions that say something of an op of the model, by its name."""
    found: dict[str, list[Decision]] = defaultdict(list)
    for decision in decisions:
        for name in (decision.node, *decision.about):
            found[name].append(decision)
    return found


def _calls_of(regions: Sequence[RegionReport]) -> list[CallDetail]:
    """A call of each region, for a report that has none."""
    return [CallDetail("main", region.symbol, "", region.symbol, (), ()) for region in regions]


def _cut_functions(source: str) -> dict[int, str]:
    """The function of each step in a region's C, with the comment above it."""
    found = re.finditer(r"^/\*[^\n]*\n^static void step_(\d+)\(.*?^}$", source, re.MULTILINE | re.DOTALL)
    return {int(function[1]): function[0] for function in found}
