"""An engine in a process of its own, which can be stopped while others are timed.

An idle engine's threads spin for a while after each run and would double its neighbours'
times, so every worker but the one being timed is stopped by SIGSTOP.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.bench.engines import ENGINES, environment
from convoy.bench.job import Engine, Job, Progress, Serving
from convoy.deploy.requests import Latencies, Load, measure_requests
from convoy.errors import ConvoyError, ModelError

START = "spawn"
"""How processes start: a forked child would inherit thread pools that do not work in it."""

_PATIENCE = 3
"""Seconds for a process to end that is told to: it may be in the middle of a run."""


@dataclass(frozen=True)
class Memory:
    """Memory of a process, in bytes."""

    now: int
    peak: int


class Worker:
    """A running engine.

    Raises
    ------
    ConvoyError
        From any method, when the engine fails.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        context: Any = multiprocessing.get_context(START)
        self._connection, self._theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(name, self._theirs), daemon=True)
        self._running = True

    def start(self, threads: int) -> None:
        """Start the process and import the engine's package in it."""
        with _environment_of(environment(threads, self.name)):
            self._process.start()
        self._theirs.close()  # or the end of the child would not end the pipe
        self._ask(("import", None))

    def prepare(self, job: Job, progress: Progress) -> Path:
        """Compile or convert the model; the file to load."""
        artifact: Path = self._ask(("prepare", job), progress)
        return artifact

    def load(self, job: Job, artifact: Path) -> float:
        """Load the model; seconds it took."""
        seconds: float = self._ask(("load", (job, artifact)))
        return seconds

    def run(self, least: int, seconds: float) -> list[float]:
        """Run at least ``least`` times and until ``seconds`` have passed; seconds of each run."""
        found = self.serve(Load(iterations=least, seconds=seconds, warmup=0))
        return [milliseconds / 1e3 for milliseconds in found.milliseconds]

    def serve(self, load: Load) -> Latencies:
        """Make requests as the load says."""
        found: Latencies = self._ask(("serve", load))
        return found

    def outputs(self) -> list[NDArray[np.float32]]:
        """What the last run computed."""
        outputs: list[NDArray[np.float32]] = self._ask(("outputs", None))
        return outputs

    def memory(self) -> Memory:
        """Memory of the process: that of Python and of the engine's package included."""
        lines = Path(f"/proc/{self._process.pid}/status").read_text("utf-8").splitlines()
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith("Vm")}
        return Memory(kilobytes["VmRSS"] << 10, kilobytes["VmHWM"] << 10)

    @property
    def process_number(self) -> int:
        """The number of the started process."""
        assert self._process.pid is not None
        return int(self._process.pid)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)
        self._running = False

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self._running = True

    def close(self) -> None:
        """End the process, stopped or not: in good order, leaving no files behind, or by force."""
        if self._process.is_alive():
            self.resume()
            with suppress(OSError):
                self._connection.send(("close", None))
            self._process.join(_PATIENCE)
            self._process.kill()
            self._process.join()
        self._connection.close()

    def _signal(self, number: signal.Signals) -> None:
        if self._process.pid is not None and self._process.is_alive():
            os.kill(self._process.pid, number)

    def _ask(self, request: tuple[str, Any], progress: Progress | None = None) -> Any:
        assert self._running, f"{self.name} is stopped"
        try:
            self._connection.send(request)
            while True:
                kind, value = self._connection.recv()
                if kind == "progress":
                    if progress is not None:
                        progress(value)
                elif kind == "error":
                    raise value
                else:
                    return value
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            self._process.join(5)
            raise ModelError(
                "bench",
                self.name,
                f"expected an answer to {request[0]!r}, got exit code {self._process.exitcode}",
                "see its messages above",
            ) from error


@contextmanager
def _environment_of(changed: Mapping[str, str]) -> Iterator[None]:
    """The environment a child is started with; the parent's is put back."""
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _serve(name: str, connection: Connection) -> None:
    """The child's side: answer requests until told to end, or the parent goes away."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    engine: Any = None
    clock = time.perf_counter
    while True:
        try:
            request, argument = connection.recv()
        except EOFError:
            return
        if request == "close":
            return
        try:
            value: Any = None
            if request == "import":
                engine = ENGINES[name]()
            elif request == "prepare":
                value = engine.prepare(argument, lambda text: connection.send(("progress", text)))
            elif request == "load":
                clock = time.process_time if argument[0].cpu_time else time.perf_counter
                start = clock()
                engine.load(*argument)
                value = clock() - start
            elif request == "serve":
                value = _serve_requests(name, engine, argument, clock)
            elif request == "outputs":
                value = engine.outputs()
            connection.send(("value", value))
        except ConvoyError as error:
            connection.send(("error", error))
        except Exception as error:
            # whatever an engine raises must reach the parent, which prints it as one line
            connection.send(("error", _as_model_error(name, error)))


def _serve_requests(name: str, engine: Engine, load: Load, clock: Callable[[], float]) -> Latencies:
    if load.streams == 1:
        return measure_requests(lambda: engine.run, load, clock)
    if isinstance(engine, Serving):
        return engine.serve(load)
    raise ModelError(
        "bench",
        name,
        f"expected an engine that takes several requests at once, got --streams {load.streams}",
        "leave it out, or say --hint latency",
    )


def _as_model_error(name: str, error: Exception) -> ModelError:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[-1] if lines else ""
    return ModelError(
        "bench",
        name,
        f"expected a run, got {type(error).__name__}: {text}",
        f"leave {name} out, or repair it",
    )
