"""``convoy bench``: time models against other engines, one run at a time or several at once."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from convoy import zoo
from convoy.bench.engines import ENGINES, OURS
from convoy.bench.estimates import StepTime, by_kind
from convoy.bench.job import Precision
from convoy.bench.measure import Measurement
from convoy.bench.page import study_content
from convoy.bench.picture import draw
from convoy.bench.startup import Startup
from convoy.bench.study import Settings, Study, means, run_study, score, wrong_engines
from convoy.bench.text import (
    KIND_HEAD,
    SPREAD,
    format_blind,
    format_bounds,
    format_kind,
    format_ms,
    format_others,
    format_percent,
    format_ratio,
    format_spread,
    study_markdown,
)
from convoy.cli.console import (
    expect_file,
    note,
    print_error,
    print_json,
    print_warning,
    progress,
    say,
    show,
    write_file,
)
from convoy.cli.options import HintOption, Html, Pin, Shapes, parse_shapes
from convoy.deploy.requests import Load, streams_for
from convoy.errors import ConvoyError, ModelError
from convoy.report.pages.page import make_page
from convoy.report.sheet import Sheet, stack
from convoy.text import line

PEERS = tuple(name for name in ENGINES if name != "convoy")
ENGINE = "engine"
"""The heading of engines, whose names stay whole on a narrow terminal."""
SETS = {1: "onnxruntime,openvino,ncnn", 2: "onnxruntime,onnxruntime-latency,openvino"}
"""The engines to compare with by themselves: in one stream, in several."""
STARTS = 3
"""Fresh processes of each engine with ``--startup``."""

Models = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[MODEL.onnx|NAME]...",
        help=f"ONNX files, or networks of the zoo: {', '.join([*zoo.names(), *zoo.built_names()])}.  "
        f"Default: those up to {zoo.names()[-1]}.",
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="NAMES",
        help=f"Engines to compare with, separated by commas: {', '.join(PEERS)}.  "
        f"Default: {SETS[1]}; of several streams {SETS[2]}.",
    ),
]
Streams = Annotated[
    int,
    typer.Option(
        "--streams", min=0, metavar="N", help="Runs at once, which share the threads; 0: by --hint."
    ),
]
Duration = Annotated[
    float,
    typer.Option(
        "--duration",
        min=0,
        metavar="S",
        help="Seconds of each engine, in all rounds together; 0: 0.25 a round.",
    ),
]
Iterations = Annotated[
    int,
    typer.Option("--iterations", min=0, metavar="N", help="Runs of each engine at least, in all rounds."),
]
Warmup = Annotated[
    int,
    typer.Option(
        "--warmup", min=0, metavar="N", help="Runs of each stream that are not timed, before each round."
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print all of it as JSON, each run's time too.")]
Threads = Annotated[
    int,
    typer.Option("--threads", min=0, metavar="N", help="Threads of every engine; 0: the physical cores."),
]
Batch = Annotated[
    int, typer.Option("--batch", min=0, metavar="N", help="Images a run; 0: what the model has.")
]
Rounds = Annotated[
    int,
    typer.Option("--rounds", min=1, metavar="N", help="Rounds; in each, every engine runs once, alone."),
]
StartUp = Annotated[
    bool,
    typer.Option(
        "--startup", help=f"Also time loading and the first run, and peak memory, in {STARTS} processes."
    ),
]
Estimates = Annotated[
    bool,
    typer.Option(
        "--estimates", help="Also time each step of Convoy's regions, beside the planner's estimate."
    ),
]
CpuTime = Annotated[
    bool,
    typer.Option(
        "--cpu-time",
        help="Count only the time an engine has a core: for --threads 1 on a busy machine.",
    ),
]
Busy = Annotated[
    int,
    typer.Option(
        "--busy", min=0, metavar="N", help="Keep N cores busy with other work, as on a shared machine."
    ),
]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="What every engine computes with, as far as it has it; a model that is quantised is int8.",
    ),
]
Results = Annotated[
    Path | None,
    typer.Option("--results", metavar="DIR", help="Write JSON, Markdown and a picture into this folder."),
]


def bench_model(
    models: Models = None,
    against: Against = None,
    threads: Threads = 0,
    batch: Batch = 0,
    rounds: Rounds = 10,
    hint: HintOption = "latency",
    streams: Streams = 0,
    duration: Duration = 0.0,
    iterations: Iterations = 0,
    warmup: Warmup = 1,
    pin: Pin = False,
    startup: StartUp = False,
    estimates: Estimates = False,
    precision: PrecisionOption = "float32",
    cpu_time: CpuTime = False,
    busy: Busy = 0,
    results: Results = None,
    shape: Shapes = None,
    html: Html = None,
    as_json: Json = False,
) -> None:
    """Time models against other engines, in interleaved rounds.

    The exit code is 1 if Convoy fails or is wrong; a peer that is, is said and is not the best one.

    Each engine lives in its own process with the same threads and precision; while one is timed the
    others are stopped.  Outputs are verified against ONNX Runtime without optimisations, inputs are
    seeded random.  Only the ratio means something on a shared machine: it is the median over rounds
    of the engine's time over Convoy's in the same round.  An engine that cannot run a model is said,
    with the reason.  An engine slower than a second runs twice only.

    With --hint throughput each engine has several runs at once, in its own best way.  What is compared
    then are runs a second: the time of a round over the runs in it.  onnxruntime-latency has one run at a
    time on all threads even then, for a network that ONNX Runtime runs quicker so.

    The bounds are the network's FLOPs, direct or with Winograd, at the machine's own FMA peak, which
    is measured between the rounds.

    With --busy, processes that compute run beside every engine: how long a request takes on a shared
    machine shows in the median and in p99, which 99 of 100 runs do not exceed.  The engines
    convoy-one-thread and onnxruntime-passive, which does not spin, are there to compare with.

    In another precision than float32 an answer is wrong that is further from the reference than most of
    the engines' by a factor.  The engine convoy-float32 is there to compare with where the file is not
    quantised itself.

    With --batch, the engine convoy-single runs the same images one by one, compiled for one.

    Examples:

    \b
      convoy bench resnet50 --against onnxruntime,openvino,ncnn
      convoy bench net.onnx --threads 1 --rounds 30
      convoy bench net.onnx --hint throughput --duration 10 --json
      convoy bench --results results --startup --estimates --html bench.html
      convoy bench squeezenet --batch 8 --against convoy-single,onnxruntime
      convoy bench resnet50 --precision bf16 --against convoy-float32,openvino
      convoy bench squeezenet --busy 2 --against convoy-one-thread,onnxruntime,onnxruntime-passive
    """
    if cpu_time and threads != 1:
        raise typer.BadParameter(
            "expected --threads 1 with --cpu-time: spinning threads would count as work"
        )
    load = Load(streams or streams_for(hint)[0], duration, iterations, warmup, pin)
    if cpu_time and load.streams > 1:
        raise typer.BadParameter("expected one stream with --cpu-time: it counts the time of all threads")
    if against is None:
        against = SETS[min(load.streams, 2)]
    names = tuple(name.strip() for name in against.split(",") if name.strip())
    settings = Settings(
        engines=("convoy", *(name for name in names if name != "convoy")),
        threads=threads,
        batch=batch,
        rounds=rounds,
        starts=STARTS if startup else 0,
        estimates=estimates,
        shapes=parse_shapes(shape),
        precision=precision,
        cpu_time=cpu_time,
        busy=busy,
        load=load,
    )
    expect_file(html, "--html", *(models or ()))
    if results is not None:
        open_results(results)
    chosen = models or zoo.names()
    title = f"timing {Path(chosen[0]).name}" if len(chosen) == 1 else f"timing {len(chosen)} models"
    command = shlex.join(["convoy", *sys.argv[1:]])

    def keep(study: Study) -> None:
        if results is not None:
            write_results(study, results)

    with progress(title) as tell:
        study = run_study(chosen, settings, command, tell, keep)
    if as_json:
        print_json(asdict(study))
    else:
        for model, measurement in study.results.items():
            print_measurement(model, measurement, load.streams)
        if len(chosen) > 1:
            show(summary_table(study))
    for model, reason in study.failures.items():
        print_error(f"{line(model)}: {reason}")
    if results is not None:
        draw_results(study, results)
    if html is not None:
        write_file(html, make_page(study_content(study)), "--html")
        note(f"page: {html}")
    ours = False
    for model, measurement in study.results.items():
        for timing in wrong_engines(measurement):
            ours |= timing.engine in OURS
            print_error(
                f"{line(timing.engine)} is wrong on {line(model)} by {timing.error:.1e}, past "
                f"{measurement.bound:.1g}"
            )
    if study.failures or ours:
        raise typer.Exit(1)


def print_measurement(model: str, measurement: Measurement, streams: int = 1) -> None:
    """The engines' times, what Convoy's come to, and loading if it was measured."""
    at_once = f", {streams} runs at once" if streams > 1 else ""
    show(timing_table(measurement, f"{Path(model).name}{at_once}", streams))
    found = score(measurement)
    if found.peer:
        say(
            f"{found.peer} is the best peer: {found.ratio:.2f} × Convoy's time "
            f"({found.fastest:.2f} × by fastest runs)"
        )
    say(format_bounds(measurement))
    note(SPREAD)
    for remark in filter(None, (format_blind(measurement), format_others(measurement))):
        say(line(remark))
    if measurement.startups:
        show(startup_table(measurement.startups, measurement.weight_bytes))
    if measurement.steps:
        show(estimate_table(measurement.steps))


def timing_table(measurement: Measurement, title: str = "", streams: int = 1) -> Sheet:
    """One row per engine, those that failed included."""
    middle = "median ms" if streams == 1 else "ms a run"
    table = Sheet(
        ENGINE, middle, "spread", "time / Convoy's", "runs/s", "fastest ms", "p50", "p90", "p99",
        "largest error", "rounds", title=title, whole=ENGINE,
    )  # fmt: skip
    for t in measurement.timings:
        table.add_row(
            t.engine,
            format_ms(t.milliseconds),
            format_spread(t),
            f"{t.ratio:.2f}",
            f"{t.throughput:.1f}",
            *(format_ms(x) for x in (t.fastest, t.p50, t.p90, t.p99)),
            f"{t.error:.1e}",
            str(t.rounds),
        )
    if measurement.failures:
        table.caption = stack(f"{name}: {why}" for name, why in measurement.failures.items())
        for engine in measurement.failures:
            table.add_row(engine, "cannot", *[""] * 8, "0")
    return table


def startup_table(startups: Sequence[Startup], weight_bytes: int) -> Sheet:
    """One row per engine."""
    table = Sheet(
        ENGINE, "load ms", "first run ms", "sum", "peak MB", "of it before loading", "files MB",
        "of the weights' size", whole=ENGINE,
    )  # fmt: skip
    for s in startups:
        sizes = (f"{size / 1e6:.1f}" for size in (s.peak, s.before, s.artifact))
        times = (format_ms(t) for t in (s.load, s.first, s.load + s.first))
        share = format_ratio(s.artifact / weight_bytes if weight_bytes else None)
        table.add_row(s.engine, *times, *sizes, share)
    return table


def estimate_table(steps: Sequence[StepTime]) -> Sheet:
    """One row per kind of step, those that take longest first."""
    table = Sheet(*KIND_HEAD, title="the planner's estimates")
    for kind in by_kind(steps):
        table.add_row(kind.kind, *format_kind(kind))
    return table


def summary_table(study: Study) -> Sheet:
    """One row per model, and the geometric means."""
    peers = study.settings.engines[1:]
    table = Sheet(
        "model", "convoy ms", *(f"{peer} ×" for peer in peers), "best ×", "best of fastest ×",
        "direct bound", "Winograd bound", title="times over Convoy's",
    )  # fmt: skip
    for model, measurement in study.results.items():
        ratios = {t.engine: t.ratio for t in measurement.timings}
        found = score(measurement)
        table.add_row(
            Path(model).name,
            format_ms(measurement.timings[0].milliseconds),
            *(format_ratio(ratios.get(peer)) for peer in peers),
            format_ratio(found.ratio),
            format_ratio(found.fastest),
            format_percent(found.direct),
            format_percent(found.winograd),
        )
    table.add_section()
    mean = means(study)
    table.add_row("geometric mean", "", *(format_ratio(mean[p]) for p in peers), format_ratio(mean["best"]))
    return table


def open_results(folder: Path) -> None:
    """See that results can be written, before hours are spent on them.

    Raises
    ------
    ModelError
        If they cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ModelError(
            "bench",
            f"--results {folder}",
            f"expected a folder to write into, got {error.strerror or error}",
            "name another folder",
        ) from error


def write_results(study: Study, folder: Path) -> None:
    """``bench-<date>.json`` and ``.md``."""
    study.write(_result_file(study, folder, ".json"))
    _result_file(study, folder, ".md").write_text(study_markdown(study), "utf-8")


def draw_results(study: Study, folder: Path) -> None:
    """``bench-<date>.svg``; without matplotlib there is none, and it is said."""
    try:
        draw(study, _result_file(study, folder, ".svg"))
    except ConvoyError as error:
        print_warning(error)
    note(f"results: {_result_file(study, folder, '.*')}")


def _result_file(study: Study, folder: Path, suffix: str) -> Path:
    stem = f"bench-{study.date.replace(' ', '-').replace(':', '')}"
    return folder / f"{stem}{suffix}"
