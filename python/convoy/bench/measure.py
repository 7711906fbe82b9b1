"""Interleaved timing: every round runs each engine once, alone, so that drift hits all alike.

The machine's absolute speed changes from minute to minute; only ratios taken within one
measurement mean anything, so each round's ratio to the first engine is kept and their median
is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from convoy import target
from convoy.bench.accuracy import BOUND, bound_of, compare_outputs, reference_outputs
from convoy.bench.bounds import Work, count_work
from convoy.bench.busy import OtherLoad, other_work
from convoy.bench.engines import check_engines
from convoy.bench.estimates import StepTime, measure_steps
from convoy.bench.inner import Probe, blind_outputs, probe_of
from convoy.bench.inputs import seeded_inputs
from convoy.bench.job import Job, Precision, Progress
from convoy.bench.machine import Machine, Rates
from convoy.bench.startup import Startup, measure_startup
from convoy.bench.units import is_quantised
from convoy.bench.worker import Worker
from convoy.deploy.requests import PERCENTILES, Latencies, Load
from convoy.errors import ConvoyError
from convoy.onnx_file import Shapes, parse_file

ROUND_SECONDS = 0.25
"""Time each engine is given in a round, and at least one run, where the load does not say."""
SLOW_SECONDS = 1.0
"""An engine slower than this is timed ``slow_runs`` times only."""


@dataclass(frozen=True)
class Timing:
    """What one engine showed."""

    engine: str
    milliseconds: float
    """Median over rounds of the median run; of several streams, of the time over the runs in it."""
    fastest: float
    """Milliseconds of the fastest run of all; of several streams, of a run in the fastest round."""
    p50: float
    """Milliseconds that half of the runs take at most, of all rounds."""
    p90: float
    p99: float
    throughput: float
    """Runs a second, of all rounds and streams."""
    spread: float
    """Interquartile range over rounds of what ``milliseconds`` is the median of, over that."""
    ratio: float
    """Median over rounds of its time over the first engine's in the same round."""
    rounds: int
    error: float
    """Largest error of its outputs over the reference's largest value."""
    samples: tuple[float, ...] = field(default=(), repr=False)
    """Milliseconds of each run."""


@dataclass(frozen=True)
class Measurement:
    """All engines on one model."""

    timings: tuple[Timing, ...]
    """Times of the engines that run it, the first one first."""
    failures: Mapping[str, str]
    """Why the others do not, by engine."""
    work: Work | None
    """FLOPs of one run; None where shapes cannot be inferred."""
    rates: Rates
    """What the machine did meanwhile: the median over rounds."""
    startups: tuple[Startup, ...] = ()
    steps: tuple[StepTime, ...] = ()
    """Times of the steps of Convoy's regions, where asked for."""
    weight_bytes: int = 0
    """Bytes of the model's constants, in float32."""
    blind: Mapping[str, str] = field(default_factory=dict)
    """Outputs that hide errors, with the reason: that they agree proves nothing."""
    inner: tuple[str, ...] = ()
    """Inner tensors that each engine was verified by in their place."""
    bound: float = BOUND
    """The largest error of a right answer."""
    others: float = 0.0
    """Cores that other processes took meanwhile, beside those started to keep the machine busy."""


def measure(
    model: str | Path,
    engines: Sequence[str],
    *,
    threads: int = 0,
    rounds: int = 10,
    slow_runs: int = 2,
    shapes: Shapes | None = None,
    starts: int = 0,
    estimates: bool = False,
    precision: Precision = "float32",
    cpu_time: bool = False,
    busy: int = 0,
    load: Load | None = None,
    artifacts: Mapping[str, Path] | None = None,
    progress: Progress = lambda _: None,
) -> Measurement:
    """Time ``engines`` on ``model`` and verify their outputs.

    Parameters
    ----------
    model : str | Path
        ONNX file.
    engines : Sequence[str]
        Names of ``ENGINES``; ratios are to the first.
    threads : int
        Threads of each engine, all its streams together; 0: the physical cores.
    rounds : int
        At least 1.
    slow_runs : int
        How often an engine is timed that takes seconds. The first is the run that verifies it: its share
        of page faults is lost in seconds.
    shapes : Shapes | None
        Sizes of inputs with symbolic dimensions.
    starts : int
        Fresh processes of each engine to time loading in.
    estimates : bool
        Also time each step of Convoy's regions, beside the planner's estimate.
    precision : Precision
        Of every engine, as far as it has it; a network that is quantised on file is of int8.
    cpu_time : bool
        Count only the time a process has a core; with one thread, what a busy machine blurs least. With
        several it would count spinning as work.
    busy : int
        Processes that compute beside every engine.
    load : Load | None
        Runs at once, and what each engine does of them in all rounds together; None, or 0 of seconds and
        iterations: ``ROUND_SECONDS`` in each round. Before a round it runs for a quarter of that, and as
        often as the load's ``warmup``.
    artifacts : Mapping[str, Path] | None
        By engine, what it loads; made, or found in the cache, for engines that are not here.
    progress : Progress
        Receives a line about what happens.

    Raises
    ------
    ConvoyError
        If an engine is not known, or the first one fails; another's failure is a result.
    """
    fixed = {name: tuple(shape) for name, shape in (shapes or {}).items()}
    proto = parse_file(Path(model))  # external data stays outside: a message holds 2 GB at most
    if precision == "float32" and is_quantised(proto):
        precision = "int8"
    check_engines(engines, precision)
    inputs = seeded_inputs(proto, fixed)
    progress("reference: running ONNX Runtime without optimisations")
    reference = reference_outputs(proto, inputs, Path(model).parent)
    names = [output.name for output in proto.graph.output]
    blind = blind_outputs(proto, inputs, reference, Path(model).parent)
    outputs = tuple(array.shape for array in reference)
    load = load or Load()
    threads = threads or target.host().cores
    job = Job(
        Path(model), inputs, max(1, threads // load.streams), fixed, outputs, precision, cpu_time,
        load.streams, load.pin,
    )  # fmt: skip
    work = count_work(proto, inputs, outputs)
    weight_bytes = 4 * sum(prod(tensor.dims) for tensor in proto.graph.initializer)
    del proto  # weights of half a gigabyte, which nobody needs any more
    with probe_of(job.model, inputs, blind) as probe:
        race = _Race(
            job, probe, engines[0], slow_runs, _load_of_round(load, rounds), artifacts or {}, progress
        )
        try:
            for name in engines:
                race.enter(name, names, reference)
            with other_work(busy) as hogs:
                other = OtherLoad((*hogs, *race.processes))
                timings, rates = race.run(rounds)
                others = other.cores()
            startups = measure_startup(job, race.artifacts, starts, progress) if starts else ()
        finally:
            race.close()
    steps: tuple[StepTime, ...] = ()
    if estimates:
        progress("convoy: timing each step")
        steps = measure_steps(job)
    inner = probe.names[len(names) :] if probe else ()
    bound = bound_of([t.error for t in timings], precision)
    return Measurement(
        timings,
        race.failures,
        work,
        rates,
        startups,
        steps,
        weight_bytes,
        blind,
        inner,
        bound,
        others,
    )


def _load_of_round(load: Load, rounds: int) -> Load:
    """A round's share of what each engine does."""
    seconds = load.seconds / rounds if load.seconds or load.iterations else ROUND_SECONDS
    return replace(load, seconds=seconds, iterations=max(1, -(-load.iterations // rounds)))


class _Entry:
    """An engine in the race: its process, stopped unless it is its turn, and its times so far."""

    def __init__(self, worker: Worker, error: float, first: float, slow_runs: int, load: Load) -> None:
        """``first``: seconds of its first run; ``slow_runs``: as ``measure``'s, 0 for all rounds."""
        self.worker = worker
        self.error = error
        self.slow = slow_runs > 0 and first > SLOW_SECONDS
        self.slow_runs = slow_runs
        self.load = replace(load, warmup=0) if self.slow else load
        self.rounds: list[Latencies] = []
        if self.slow and load.streams == 1:
            self.rounds.append(Latencies((1e3 * first,), first))

    @property
    def finished(self) -> bool:
        """An engine that takes seconds sits out the rounds after its last."""
        return self.slow and len(self.rounds) >= self.slow_runs

    def run_round(self) -> None:
        self.worker.resume()
        if not self.slow:  # warm-up: caches and clocks after the pause
            self.worker.serve(replace(self.load, seconds=ROUND_SECONDS / 4, iterations=1))
        self.rounds.append(self.worker.serve(self.load))
        self.worker.pause()

    @property
    def milliseconds(self) -> list[float]:
        """Milliseconds of a run in each round, as ``Timing`` has them."""
        if self.load.streams == 1:
            return [found.percentile(50) for found in self.rounds]
        return [1e3 / found.throughput for found in self.rounds]

    def timing(self, first: _Entry) -> Timing:
        own = self.milliseconds
        low, middle, high = (float(q) for q in np.percentile(own, (25, 50, 75)))
        samples = tuple(sample for found in self.rounds for sample in found.milliseconds)
        every = Latencies(samples, sum(found.seconds for found in self.rounds))
        p50, p90, p99 = (every.percentile(percent) for percent in PERCENTILES)
        return Timing(
            engine=self.worker.name,
            milliseconds=middle,
            fastest=min(samples if self.load.streams == 1 else own),
            p50=p50,
            p90=p90,
            p99=p99,
            throughput=every.throughput,
            spread=(high - low) / middle,
            ratio=median(mine / theirs for mine, theirs in zip(own, first.milliseconds, strict=False)),
            rounds=len(own),
            error=self.error,
            samples=samples,
        )


class _Race:
    """Engines that take turns.  One that fails is out, with its reason; the first must not fail."""

    def __init__(
        self,
        job: Job,
        probe: Probe | None,
        first: str,
        slow_runs: int,
        load: Load,
        made: Mapping[str, Path],
        progress: Progress,
    ) -> None:
        self._job = job
        self._probe = probe
        self._first = first
        self._slow_runs = slow_runs
        self._load = load
        self._progress = progress
        self._entries: list[_Entry] = []
        self._machine = Machine(job.threads * job.streams, cpu_time=job.cpu_time)
        self._made = made
        self.artifacts: dict[str, Path] = {}
        self.failures: dict[str, str] = {}

    def enter(self, name: str, outputs: Sequence[str], reference: Sequence[NDArray[np.float32]]) -> None:
        """Prepare, load and verify an engine."""
        worker = Worker(name)
        try:
            artifact = self._made.get(name) or self._prepare(name, self._job)
            worker.start(self._job.threads)
            self._progress(f"{name}: loading")
            worker.load(self._job, artifact)
            (first,) = worker.run(1, 0.0)
            error = max(d.relative for d in compare_outputs(outputs, worker.outputs(), reference))
            worker.pause()
            error = max(error, self._probe_error(name))
        except ConvoyError as failure:
            worker.close()
            self._fail(name, failure)
            return
        self.artifacts[name] = artifact
        # never so few of the first: all others are compared with it
        slow_runs = 0 if name == self._first else self._slow_runs
        self._entries.append(_Entry(worker, error, first, slow_runs, self._load))

    @property
    def processes(self) -> tuple[int, ...]:
        return tuple(entry.worker.process_number for entry in self._entries)

    def _probe_error(self, name: str) -> float:
        """The largest error of the inner tensors, in a process of its own; it is not timed."""
        if self._probe is None or not self._probe.names:
            return 0.0
        self._progress(f"{name}: comparing inner tensors")
        shapes = tuple(array.shape for array in self._probe.reference)
        job = replace(self._job, model=self._probe.model, outputs=shapes)
        artifact = self._prepare(name, job)
        worker = Worker(name)
        try:
            worker.start(job.threads)
            worker.load(job, artifact)
            worker.run(1, 0.0)
            found = compare_outputs(self._probe.names, worker.outputs(), self._probe.reference)
        finally:
            worker.close()
        return max(difference.relative for difference in found)

    def _prepare(self, name: str, job: Job) -> Path:
        worker = Worker(name)
        try:
            worker.start(job.threads)
            return worker.prepare(job, lambda text: self._progress(f"{name}: {text}"))
        finally:
            worker.close()

    def _fail(self, name: str, failure: ConvoyError) -> None:
        if name == self._first:
            raise failure
        self.failures[name] = str(failure)

    def run(self, rounds: int) -> tuple[tuple[Timing, ...], Rates]:
        """All engines, one after the other, ``rounds`` times; and the machine itself."""
        rates = []
        for number in range(rounds):
            rates.append(self._machine.measure())
            for entry in [entry for entry in self._entries if not entry.finished]:
                self._progress(f"round {number + 1} of {rounds}: {entry.worker.name}")
                try:
                    entry.run_round()
                except ConvoyError as failure:
                    self._entries.remove(entry)
                    entry.worker.close()
                    self._fail(entry.worker.name, failure)
        middle = Rates(median(r.flops for r in rates), median(r.bandwidth for r in rates))
        return tuple(entry.timing(self._entries[0]) for entry in self._entries), middle

    def close(self) -> None:
        for entry in self._entries:
            entry.worker.close()
