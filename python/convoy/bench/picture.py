"""A study as one picture: bars of time relative to Convoy's, and a roofline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from convoy.bench.engines import TITLES
from convoy.bench.study import Study
from convoy.errors import ModelError
from convoy.text import caption

COLORS = {
    "convoy": "#0b6e4f",
    "onnxruntime": "#8aa1b1",
    "openvino": "#5b6c8f",
    "ncnn": "#d99a3d",
    "ncnn-passive": "#e8c48a",
    "tvm": "#b9b2a6",
}
_CLIP = 3.0
"""Longer bars are cut: they end in a slanted gap, and carry their number."""


def draw(study: Study, path: Path) -> None:
    """Write the picture; the suffix of ``path`` gives its format, ``.svg`` or ``.png``.

    Raises
    ------
    ModelError
        If matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise ModelError(
            "bench",
            "picture",
            "expected the package matplotlib, got an import error",
            "pip install matplotlib",
        ) from None
    from matplotlib.figure import Figure

    # text stays text; no random ids and no date, so that equal studies give equal files
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "convoy", "font.size": 9}):
        figure = Figure(figsize=(12, 0.55 * len(study.results) + 2.2), layout="constrained")
        bars, roof = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_bars(bars, study)
        _draw_roofline(roof, study)
        threads = f"{study.threads} thread{'s' * (study.threads > 1)}"
        title = f"{study.settings.precision}, {threads}, {caption(study.cpu)}, {study.date} UTC"
        figure.suptitle(title, fontsize=10, color="#444444")
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=120, metadata=metadata)


def _draw_bars(axes: Any, study: Study) -> None:
    engines = study.settings.engines
    height = 0.8 / len(engines)
    for place, engine in enumerate(engines):
        color = COLORS.get(engine, "#777777")
        axes.barh([], [], color=color, label=TITLES.get(engine, engine))
        for row, measurement in enumerate(study.results.values()):
            at = row + (place - (len(engines) - 1) / 2) * height
            for t in measurement.timings:
                if t.engine == engine:
                    right = t.error <= measurement.bound
                    _draw_bar(axes, t.ratio, at, height, color, right, number=engine != engines[0])
    axes.axvline(1.0, color="#222222", linewidth=0.8)
    axes.set_yticks(range(len(study.results)), [caption(model) for model in study.results])
    axes.invert_yaxis()
    axes.set_xlim(0, _CLIP + 0.35)
    axes.set_xlabel("time / Convoy's time (median over interleaved rounds)")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(engines), frameon=False)
    _tidy(axes)


def _draw_bar(
    axes: Any, ratio: float, at: float, height: float, color: str, right: bool, number: bool
) -> None:
    """One engine's time of one model; that of a wrong answer is an empty bar."""
    length = min(ratio, _CLIP)
    fill = {"color": color} if right else {"facecolor": "none", "edgecolor": color, "linestyle": ":"}
    axes.barh([at], [length], height * 0.92, **fill)
    if ratio > _CLIP:
        end = _CLIP - 0.12
        axes.plot((end, end + 0.06), (at + height / 2, at - height / 2), color="white", linewidth=2.5)
    words = [f"{ratio:.2f}"] * number + ["wrong"] * (not right)
    axes.text(length + 0.02, at, " ".join(words), va="center", fontsize=7)


def _draw_roofline(axes: Any, study: Study) -> None:
    """Direct FLOPs a second over FLOPs a byte of weights, input and output.

    A point above the flat roof is Winograd's: it computes with fewer FLOPs than are counted.
    """
    points = []
    for model, measurement in study.results.items():
        work = measurement.work
        if work:
            rate = work.direct / (measurement.timings[0].milliseconds / 1e3)
            roof = measurement.rates
            points.append((work.direct / work.traffic, rate / roof.flops, roof, caption(model)))
    if points:
        balances = sorted(roof.flops / roof.bandwidth for _, _, roof, _ in points)
        balance = balances[len(balances) // 2]
        low = min(balance, *(p[0] for p in points)) / 2
        high = max(p[0] for p in points) * 2
        axes.plot([low, balance, high], [low / balance, 1, 1], color="#222222", linewidth=1)
    axes.set_xscale("log")
    axes.set_yscale("log", base=2)
    for intensity, share, _, label in points:
        axes.plot(intensity, share, "o", color=COLORS["convoy"], markersize=5)
        axes.annotate(label, (intensity, share), (4, 3), textcoords="offset points", fontsize=7)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("direct FLOPs / byte of weights, input and output")
    axes.set_ylabel("direct FLOPs a second / FMA peak")
    axes.set_title("Convoy under the roofline of the same run", fontsize=9)
    _tidy(axes)


def _tidy(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
