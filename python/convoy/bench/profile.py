"""Where the time of a run goes: steps of regions, TVM's kernels around them, and what is between.

The model is compiled with its steps traced, and runs in turns with somebody listening and without.
Listening takes a fixed time a call and a step, which is much of a very short run.  Of such runs only one
in many is listened to, so that all of them together are at most ``DEAREST`` slower.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import onnx

from convoy import target
from convoy.bench.estimates import slowness
from convoy.bench.inputs import Arrays, model_inputs, read_model, seeded_inputs
from convoy.bench.machine import Machine
from convoy.bench.timeline import AROUND, BETWEEN, RUNTIME, TEAM, Key, Timeline
from convoy.errors import ModelError
from convoy.offload.settings import Progress, make_settings
from convoy.onnx_file import Shapes
from convoy.options import Options
from convoy.plan.clock import nominal_roof
from convoy.report.decision import RegionReport, Report, Roof
from convoy.report.profile import Kind, Part, Profile, Span

if TYPE_CHECKING:
    from convoy.deploy.traced import Recording, TracedRunner

SECONDS = 3.0
"""Given to the runs."""
WARM, WARM_SECONDS = 2, 0.1
"""Runs that are listened to before those that count, and the time they are given at least."""
LEAST, MOST = 8, 2000
"""Runs that are listened to and count."""
DEAREST = 0.015
"""What listening may cost, of the time of all runs."""
EVENT_SECONDS = 5e-7
"""More than it takes to listen to an event; what is measured beyond is other work on the machine."""


def profile(
    model: str | Path | onnx.ModelProto,
    *,
    inputs: Arrays | None = None,
    shapes: Shapes | None = None,
    options: Options | None = None,
    threads: int | None = None,
    seconds: float = SECONDS,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Compile a model for this machine and say where the time of a run goes.

    Parameters
    ----------
    model : str | Path | onnx.ModelProto
        Path of an ONNX file, or what is in one.
    inputs : Arrays | None
        By name; None: seeded random ones.
    shapes, options, threads, report, progress
        As of ``convoy.compile``.
    seconds : float
        How long to run it; it runs eight times at least, and no longer than more runs would say more.

    Raises
    ------
    ConvoyError
        As ``convoy.compile``; for inputs that the model does not take.
    """
    from convoy.relax.traced import compile_traced

    asked = make_settings("profile", options, report, progress)
    chosen, report = asked.options, asked.report
    if threads is not None:
        chosen = replace(chosen, threads=threads)
    count = chosen.threads or target.host().cores
    proto = _read(model)
    given = seeded_inputs(proto, shapes) if inputs is None else _in_order(inputs, proto)
    fixed = {**{name: array.shape for name, array in given.items()}, **(shapes or {})}
    runner, names = compile_traced(model, list(given.values()), fixed, chosen, report, progress)
    if progress is not None:
        progress("running it")
    machine, probe = target.host(), Machine(count)
    rates = [probe.measure()]
    every = one_in(runner)
    plain, listened = _measure(runner, seconds, every, LEAST)
    rates.append(probe.measure())
    flops = max(probe.best_flops(), *(rate.flops for rate in rates))
    slow = slowness(machine, count, flops)
    roof = Roof(flops, max(rate.bandwidth for rate in rates), nominal_roof(machine, count).cache / slow)
    found = {region.symbol: region for region in report.regions}
    fastest = [Timeline(run.read(), found) for run in _fastest(listened)]
    typical = fastest[len(fastest) // 2]
    first = next(iter(given.values())).shape if given else ()
    keys = _order(typical, fastest)
    calls = {call.name: call.node for call in report.calls}
    images = first[0] if first else 1
    parts = [_make_part(key, fastest, found.get(key.name), names, calls, slow, images) for key in keys]
    place = {key: i for i, key in enumerate(keys)}
    spans = [
        Span(place[key], event.thread, event.begin - typical.trace.begin, event.end - typical.trace.begin)
        for key, event in typical.spans
    ]
    return Profile(
        model=Path(model).name if isinstance(model, str | Path) else str(proto.graph.name),
        threads=count,
        parts=tuple(parts),
        seconds=fmean(timeline.trace.seconds for timeline in fastest),
        plain=_mean(plain),
        runs=len(plain),
        every=every,
        roof=roof,
        spans=tuple(sorted(spans, key=lambda span: span.begin)),
        report=report,
    )


def one_in(runner: TracedRunner) -> int:
    """One run in how many may be listened to."""
    plain, listened = _measure(runner, WARM_SECONDS, 1, WARM)
    alone = _mean(plain)
    seen = fmean(run.seconds for run in _fastest(listened))
    cost = min(seen - alone, EVENT_SECONDS * len(listened[0].raw))
    return max(math.ceil(cost / alone / DEAREST), 1)


def _measure(
    runner: TracedRunner, seconds: float, every: int, least: int
) -> tuple[list[float], list[Recording]]:
    """Runs while nobody listens, and one in ``every`` while somebody does.

    What runs in between leaves the caches cold, so one run of each kind goes before those that count.
    """
    plain: list[float] = []
    listened: list[Recording] = []
    end = time.perf_counter() + seconds
    while len(listened) < least or (time.perf_counter() < end and len(listened) < MOST):
        runner.run()
        plain += [runner.run() for _ in range(max(every - 1, 1))]
        runner.trace()
        listened.append(runner.trace())
    return plain, listened


def _fastest(runs: Sequence[Recording]) -> Sequence[Recording]:
    """The fastest quarter, fastest first."""
    return sorted(runs, key=lambda run: run.seconds)[: _quarter(len(runs))]


def _mean(runs: Sequence[float]) -> float:
    """Their fastest quarter's."""
    return fmean(sorted(runs)[: _quarter(len(runs))])


def _quarter(runs: int) -> int:
    return max(runs // 4, 1)


def _read(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    if isinstance(model, str | Path):
        return read_model(model)
    if not isinstance(model, onnx.ModelProto):
        problem = "expected a path or an onnx.ModelProto, got an object of this type"
        raise ModelError("import", type(model).__name__, problem, "pass one of them")
    return model


def _in_order(inputs: Arrays, model: onnx.ModelProto) -> Arrays:
    """The inputs in the model's order.

    Raises
    ------
    ModelError
        If they are not those of the model.
    """
    names = [value.name for value in model_inputs(model)]
    if set(names) != set(inputs):
        raise ModelError(
            "profile", "inputs", f"expected {', '.join(names)}, got {', '.join(inputs) or 'none'}",
            "give an array for each input, by its name",
        )  # fmt: skip
    return {name: inputs[name] for name in names}


def _order(typical: Timeline, others: Sequence[Timeline]) -> list[Key]:
    """Steps and kernels in the order in which they begin, then what TVM does besides, then the team."""
    begun: dict[Key, float] = {}
    for key, event in typical.spans:
        begun[key] = min(event.begin, begun.get(key, event.begin))
    keys = dict.fromkeys(key for timeline in (typical, *others) for key in timeline.seconds)
    last = float("inf")
    return sorted(
        dict.fromkeys([*keys, *begun]),
        key=lambda key: (key.name == TEAM, _is_runtime(key), begun.get(key, last)),
    )


def _is_runtime(key: Key) -> bool:
    return key.name in (BETWEEN, AROUND) or key.name.startswith(RUNTIME)


def _make_part(
    key: Key,
    runs: Sequence[Timeline],
    region: RegionReport | None,
    names: Mapping[str, Sequence[str]],
    calls: Mapping[str, str],
    slow: float,
    images: int,
) -> Part:
    taken = fmean(run.seconds.get(key, 0.0) for run in runs)
    if region is None:
        kind: Kind = "team" if key.name == TEAM else "runtime" if _is_runtime(key) else "kernel"
        made = names.get(key.name, ())
        results = tuple(made[key.number : key.number + 1] if 0 <= key.number < len(made) else made)
        nodes = tuple(calls.get(name, name.partition(": ")[2]) for name in results)
        return Part(kind, key.name, -1, key.name, key.name, nodes, results, taken)
    detail, number = region.details[key.number], key.number
    batch = images if region.batch is None else region.batch
    threads = sorted({thread for run in runs for thread in run.busy.get(key, ())})
    return Part(
        kind="step",
        where=region.symbol,
        step=number,
        text=region.steps[number],
        kernel=region.kinds[number],
        nodes=detail.nodes,
        results=(),
        seconds=taken,
        busy=tuple(fmean(run.busy[key].get(thread, 0.0) for run in runs) for thread in threads),
        estimate=region.estimates[number] * slow * batch,
        flops=detail.flops * batch,
        products=detail.products,
        at_once=detail.at_once,
        bytes=detail.bytes * batch,
    )
