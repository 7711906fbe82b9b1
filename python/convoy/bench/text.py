"""A study as Markdown: the tables of docs/performance.md."""

from __future__ import annotations

from collections.abc import Sequence

from convoy.bench.engines import TITLES
from convoy.bench.estimates import KindTimes, by_kind
from convoy.bench.measure import Measurement, Timing
from convoy.bench.study import Study, geometric_mean, means, score
from convoy.text import markdown, markdown_code


def format_ms(milliseconds: float) -> str:
    """Three or more digits: 0.0123, 4.56, 78.9, 1234."""
    return f"{milliseconds:.3g}" if milliseconds < 100 else f"{milliseconds:.0f}"


def format_ratio(ratio: float | None) -> str:
    return "–" if ratio is None or ratio != ratio else f"{ratio:.2f}"


def format_percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def format_spread(timing: Timing) -> str:
    """Half of the interquartile range over rounds; of a single round nothing is known."""
    return f"±{50 * timing.spread:.0f} %" if timing.rounds > 1 else "–"


SPREAD = "spread: half of the rounds differ by no more from the median; ±0 % is less than half a percent"
MORE_THAN_ALL = (
    "more than 100 % is right where an algorithm makes fewer products than the definition, "
    "or the machine was faster in between"
)


def format_bounds(measurement: Measurement) -> str:
    """Convoy's shares of the bounds; more than all is explained."""
    found, rates = score(measurement), measurement.rates
    more = any(share is not None and share > 1 for share in (found.direct, found.winograd))
    return (
        f"{format_percent(found.direct)} of the direct FLOP bound, "
        f"{format_percent(found.winograd)} of Winograd's, "
        f"at {rates.flops / 1e9:.0f} GFLOP/s and {rates.bandwidth / 1e9:.1f} GB/s measured between rounds"
        + (f"; {MORE_THAN_ALL}" if more else "")
    )


BUSY_CORES = 0.1
"""From so many cores on that other processes took, it is said."""


def format_blind(measurement: Measurement) -> str:
    """That outputs agreeing proves nothing, and what was compared in their place; or nothing."""
    if not measurement.blind:
        return ""
    by_cause: dict[str, list[str]] = {}
    for name, cause in measurement.blind.items():
        by_cause.setdefault(cause, []).append(name)
    blind = "; ".join(f"{cause}: {', '.join(outputs)}" for cause, outputs in by_cause.items())
    instead = ", ".join(measurement.inner) or "none varies either, so nothing was verified"
    return f"{blind}; that it agrees proves nothing; inner tensors compared in its place: {instead}"


def format_others(measurement: Measurement) -> str:
    """That the machine was busy, or nothing."""
    if measurement.others < BUSY_CORES:
        return ""
    return (
        f"the machine was busy: other processes took {measurement.others:.1f} cores meanwhile; "
        "the ratios suffer, the times do more"
    )


def study_markdown(study: Study) -> str:
    """Header, the table of times, the geometric means, what failed and, if measured, starting up."""
    parts = [_header(study), _times(study), _means(study), *_failures(study), *_blind(study)]
    if any(m.startups for m in study.results.values()):
        parts.append(_startups(study))
    if any(m.steps for m in study.results.values()):
        parts.append(_estimates(study))
    return "\n\n".join(parts) + "\n"


def _header(study: Study) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in study.versions.items())
    rates = [m.rates for m in study.results.values()]
    speed = "not measured"
    if rates:
        flops = sorted(r.flops for r in rates)
        bandwidth = sorted(r.bandwidth for r in rates)
        speed = (
            f"FMA peak {flops[len(flops) // 2] / 1e9:.0f} GFLOP/s "
            f"({flops[0] / 1e9:.0f} to {flops[-1] / 1e9:.0f} from model to model), "
            f"memory reads {bandwidth[len(bandwidth) // 2] / 1e9:.1f} GB/s"
        )
    others = max((m.others for m in study.results.values()), default=0.0)
    busy = " The machine was busy with other work: the ratios suffer, the times do more."
    beside = f", beside {study.settings.busy} processes that compute" if study.settings.busy else ""
    return "\n".join(
        (
            f"- date: {study.date} UTC",
            f"- machine: {markdown(study.cpu)}",
            f"- measured in the same run: {speed}",
            f"- load average before and after: {study.load[0]:.1f}, {study.load[1]:.1f}; "
            f"cores that other processes took: {others:.1f}.{busy if others >= BUSY_CORES else ''}",
            f"- versions: {versions}",
            f"- settings: {study.settings.precision}, {study.threads} thread{'s' * (study.threads > 1)}, "
            f"{_streams(study)}{study.settings.rounds} rounds, "
            f"batch {study.settings.batch or 'as in the model'}, "
            f"{'processor' if study.settings.cpu_time else 'wall'} time{beside}",
            f"- command: {markdown_code(study.command)}",
        )
    )


def _streams(study: Study) -> str:
    """How many runs at once, if several; what times are, then."""
    streams = study.settings.load.streams
    return f"{streams} runs at once (ms: the time over the runs in it), " if streams > 1 else ""


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is left-aligned, the others right."""
    lines = [head, ["---", *("--:" for _ in head[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _times(study: Study) -> str:
    head = ["model", *(f"{TITLES.get(e, e)}, ms" for e in study.settings.engines)]
    head += ["best peer / Convoy", "of fastest runs", "direct bound", "Winograd bound"]
    rows = []
    for model, measurement in study.results.items():
        found = score(measurement)
        rows.append(
            [
                markdown(model),
                *(_cell(measurement, engine) for engine in study.settings.engines),
                f"**{format_ratio(found.ratio)}**" + (f" {TITLES[found.peer]}" if found.peer else ""),
                format_ratio(found.fastest),
                format_percent(found.direct),
                format_percent(found.winograd),
            ]
        )
    return table(head, rows)


def _cell(measurement: Measurement, engine: str) -> str:
    """Median and spread; for a peer also its ratio."""
    for t in measurement.timings:
        if t.engine == engine:
            ratio = "" if t is measurement.timings[0] else f" ({t.ratio:.2f}×)"
            wrong = "" if t.error <= measurement.bound else " wrong"
            return f"{format_ms(t.milliseconds)} {format_spread(t)}{ratio}{wrong}"
    return "fails" if engine in measurement.failures else "–"


def _means(study: Study) -> str:
    found = means(study)
    each = ", ".join(
        f"{TITLES.get(name, name)} {format_ratio(r)}" for name, r in found.items() if name != "best"
    )
    quickest = geometric_mean([score(m).fastest for m in study.results.values()])
    return (
        f"Geometric mean of best peer / Convoy: **{format_ratio(found['best'])}** "
        f"(of fastest runs {format_ratio(quickest)}). Alone: {each}."
    )


def _failures(study: Study) -> list[str]:
    lines = [f"- {markdown(model)}: {markdown(reason)}" for model, reason in study.failures.items()]
    for model, measurement in study.results.items():
        for engine, reason in measurement.failures.items():
            why = markdown(" ".join(reason.split()))
            lines.append(f"- {markdown(model)}, {TITLES.get(engine, engine)}: {why}")
        for t in measurement.timings:
            if not t.error <= measurement.bound:
                lines.append(
                    f"- {markdown(model)}, {TITLES.get(t.engine, t.engine)}: "
                    f"wrong by {t.error:.1e} (bound {measurement.bound:.1g})"
                )
    return ["What failed:\n\n" + "\n".join(lines)] if lines else []


def _blind(study: Study) -> list[str]:
    lines = [
        f"- {markdown(model)}: {markdown(remark)}"
        for model, measurement in study.results.items()
        if (remark := format_blind(measurement))
    ]
    return ["Outputs that prove nothing:\n\n" + "\n".join(lines)] if lines else []


def _startups(study: Study) -> str:
    head = [
        "model",
        "engine",
        "load, ms",
        "first run, ms",
        "sum, ms",
        "memory, MB",
        "of it before",
        "files, MB",
        "of weights",
    ]
    rows = [
        [
            markdown(model),
            TITLES.get(s.engine, s.engine),
            format_ms(s.load),
            format_ms(s.first),
            format_ms(s.load + s.first),
            *(f"{size / 1e6:.1f}" for size in (s.peak, s.before, s.artifact)),
            format_ratio(s.artifact / measurement.weight_bytes if measurement.weight_bytes else None),
        ]
        for model, measurement in study.results.items()
        for s in measurement.startups
    ]
    return "Loading, first run, peak memory:\n\n" + table(head, rows)


def _estimates(study: Study) -> str:
    rows = [
        [markdown(model), kind.kind, *format_kind(kind)]
        for model, steps in {
            **{model: m.steps for model, m in study.results.items()},
            "all": [step for m in study.results.values() for step in m.steps],
        }.items()
        for kind in by_kind(steps)
    ]
    return "The planner's estimates and what its steps took:\n\n" + table(["model", *KIND_HEAD], rows)


KIND_HEAD = (
    "kind of step",
    "steps",
    "estimated, ms",
    "measured, ms",
    "measured / estimated",
    "typically off by",
)


def format_kind(kind: KindTimes) -> tuple[str, ...]:
    """The cells of ``KIND_HEAD`` after the first."""
    return (
        str(kind.steps),
        format_ms(kind.estimated),
        format_ms(kind.measured),
        format_ratio(kind.measured / kind.estimated),
        f"{format_ratio(kind.error)} ×",
    )
