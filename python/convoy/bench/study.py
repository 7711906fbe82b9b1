"""Many models, one after the other, and what the figures come to."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from math import exp, log
from pathlib import Path

import onnx

from convoy import target, zoo
from convoy.bench.batch import set_batch
from convoy.bench.draws import hold_draws
from convoy.bench.engines import OURS, PACKAGES
from convoy.bench.inputs import read_model
from convoy.bench.job import Precision, Progress
from convoy.bench.machine import load_average
from convoy.bench.measure import Measurement, Timing, measure
from convoy.deploy.requests import Load
from convoy.errors import ConvoyError, ModelError
from convoy.onnx_file import Shapes, parse_file
from convoy.target.this_machine import describe_cpu
from convoy.text import to_json


@dataclass(frozen=True)
class Settings:
    """What all models of a study are run with."""

    engines: tuple[str, ...]
    """Convoy first."""
    threads: int = 0
    """0: the physical cores."""
    batch: int = 0
    """0: what the model has."""
    rounds: int = 10
    starts: int = 0
    """Fresh processes of each engine to time loading in."""
    estimates: bool = False
    """Also time each step of Convoy's regions, beside the planner's estimate."""
    shapes: Shapes | None = None
    precision: Precision = "float32"
    cpu_time: bool = False
    """Processor time in place of wall time; for one thread."""
    busy: int = 0
    """Processes that compute beside every engine."""
    load: Load = field(default_factory=Load)
    """Runs at once, and of each engine in all rounds together."""


@dataclass(frozen=True)
class Study:
    date: str
    """When it started, in UTC, to the minute."""
    command: str
    cpu: str
    threads: int
    settings: Settings
    versions: Mapping[str, str]
    load: tuple[float, float]
    """Load average before and after."""
    results: Mapping[str, Measurement]
    failures: Mapping[str, str]
    """Models that Convoy itself, or the reference, does not run, and why."""

    def write(self, path: Path) -> None:
        """All of it as JSON."""
        path.write_text(to_json(asdict(self), indent=1) + "\n", "utf-8")


def run_study(
    models: Sequence[str],
    settings: Settings,
    command: str,
    progress: Progress = lambda _: None,
    keep: Callable[[Study], None] = lambda _: None,
) -> Study:
    """Measure ``models``: names of the zoo, or ONNX files.

    ``keep`` receives the study so far after each model: the whole zoo takes a while, and may be
    interrupted.

    Raises
    ------
    ConvoyError
        If a model is neither a file nor a name, or there is one only and it fails; of several, the others
        are still measured.
    """
    study = Study(
        date=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S}",
        command=command,
        cpu=describe_cpu(),
        threads=settings.threads or target.host().cores,
        settings=settings,
        versions=_versions(),
        load=(load_average(), load_average()),
        results={},
        failures={},
    )
    for model in models:
        check_name(model)
    for model in models:
        say = _prefixed(progress, model if len(models) > 1 else "")
        try:
            with model_file(model, settings.batch, say) as path:
                measurement = measure(
                    path,
                    settings.engines,
                    threads=settings.threads,
                    rounds=settings.rounds,
                    shapes=settings.shapes,
                    starts=settings.starts,
                    estimates=settings.estimates,
                    precision=settings.precision,
                    cpu_time=settings.cpu_time,
                    busy=settings.busy,
                    load=settings.load,
                    progress=say,
                )
        except ConvoyError as error:
            if len(models) == 1:
                raise
            study = replace(study, failures={**study.failures, model: str(error)})
        else:
            study = replace(study, results={**study.results, model: measurement})
        study = replace(study, load=(study.load[0], load_average()))
        keep(study)
    return study


def _prefixed(progress: Progress, model: str) -> Progress:
    return (lambda text: progress(f"{model}: {text}")) if model else progress


def check_name(model: str, step: str = "bench") -> None:
    """See that a model is a file, or a network of the zoo.

    Raises
    ------
    ModelError
        If it is neither.
    """
    known = (*zoo.names(), *zoo.built_names())
    if not os.path.exists(model) and model not in known:
        raise ModelError(
            step,
            model,
            "expected an ONNX file or a network of the zoo, got neither",
            f"check the path, or name one of {', '.join(known)}",
        )


@contextmanager
def model_file(model: str, batch: int, progress: Progress, step: str = "bench") -> Iterator[Path]:
    """The model as an ONNX file: itself, or one that lives as long as the context.

    A benchmark compares answers, and so has constants in the place of random numbers.

    Networks of the zoo lose a final softmax: it hides errors, and takes none of the time.
    """
    there = os.path.exists(model)  # Path's own raises for a name longer than any file's
    drawing = hold_draws(parse_file(Path(model)))[1] if there and step == "bench" else []
    if there and not batch and not drawing:
        yield Path(model)
        return
    if there:
        proto = read_model(model)
        if drawing:
            progress(
                f"random numbers are drawn by {', '.join(drawing)}: timed with constants in their place"
            )
            proto, _ = hold_draws(proto)
    else:
        check_name(model, step)
        progress("giving it seeded weights")
        proto = zoo.strip_softmax(zoo.load(model))
    if batch:
        set_batch(proto, batch)
    with tempfile.TemporaryDirectory(prefix="convoy-bench-") as folder:
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path)
        del proto
        yield path


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


@dataclass(frozen=True)
class Score:
    """Convoy against the best peer on one model."""

    peer: str | None
    """None: no peer ran it, or none was right."""
    ratio: float
    """Its time over Convoy's, median over rounds; above 1 Convoy is ahead."""
    fastest: float
    """Fastest run of any peer over Convoy's fastest: what a busy machine blurs least."""
    direct: float | None
    """Convoy's share of the direct FLOP bound: above 1 only Winograd gets."""
    winograd: float | None
    """Convoy's share of the Winograd bound."""


def score(measurement: Measurement) -> Score:
    """What one model's figures come to."""
    own, *others = measurement.timings
    right = [t for t in others if t.error <= measurement.bound and t.engine not in OURS]
    best = min(right, key=lambda t: t.ratio, default=None)
    fastest = min((t.fastest for t in right), default=float("nan"))
    work, peak = measurement.work, measurement.rates.flops
    seconds = own.milliseconds / 1e3
    return Score(
        peer=best.engine if best else None,
        ratio=best.ratio if best else float("nan"),
        fastest=fastest / own.fastest,
        direct=work.direct / peak / seconds if work else None,
        winograd=work.winograd / peak / seconds if work else None,
    )


def wrong_engines(measurement: Measurement) -> list[Timing]:
    """Engines whose outputs are not the reference's."""
    return [t for t in measurement.timings if not t.error <= measurement.bound]


def geometric_mean(ratios: Sequence[float]) -> float:
    """NaN of nothing; NaNs are left out."""
    logarithms = [log(r) for r in ratios if r == r]
    return exp(sum(logarithms) / len(logarithms)) if logarithms else float("nan")


def means(study: Study) -> dict[str, float]:
    """Geometric mean over the models of each peer's time over Convoy's, and of ``best``'s."""
    scores = [score(m) for m in study.results.values()]
    found = {"best": geometric_mean([s.ratio for s in scores])}
    for engine in study.settings.engines[1:]:
        found[engine] = geometric_mean(
            [
                t.ratio
                for m in study.results.values()
                for t in m.timings
                if t.engine == engine and t.error <= m.bound
            ]
        )
    return found
