"""Requests, one after the other in each of several streams: how long they take, how many a second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from convoy import target

PERCENTILES = (50, 90, 99)
Stream = Callable[[], object]
"""One request."""


@dataclass(frozen=True)
class Load:
    """How requests are made."""

    streams: int = 1
    """Requests at once."""
    seconds: float = 0.0
    """For how long; 0: until there are enough."""
    iterations: int = 0
    """At least so many, all streams together."""
    warmup: int = 1
    """Requests of each stream that do not count."""
    pin: bool = False
    """Each stream on a core of its own."""


@dataclass(frozen=True)
class Latencies:
    """What a load came to."""

    milliseconds: tuple[float, ...]
    """That of each request, in no order."""
    seconds: float
    """From the first request's begin to the last one's end."""

    @property
    def throughput(self) -> float:
        """Requests a second."""
        return len(self.milliseconds) / self.seconds

    def percentile(self, percent: float) -> float:
        """Milliseconds that so many of a hundred requests do not exceed."""
        return float(np.percentile(self.milliseconds, percent, method="inverted_cdf"))

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        found = {f"p{percent}": self.percentile(percent) for percent in PERCENTILES}
        return {**found, "throughput": self.throughput, "samples": list(self.milliseconds)}


def streams_for(hint: str) -> tuple[int, int]:
    """Streams and threads of each for ``latency`` or ``throughput``; 0 threads: as the library says."""
    return (target.host().cores, 1) if hint == "throughput" else (1, 0)


def latencies_of(spans: Sequence[tuple[float, float]]) -> Latencies:
    """What requests came to that began and ended at these seconds of a clock."""
    whole = max(end for _, end in spans) - min(start for start, _ in spans)
    return Latencies(tuple(1e3 * (end - start) for start, end in spans), whole)


def measure_requests(
    open_stream: Callable[[], Stream], load: Load, clock: Callable[[], float] = time.perf_counter
) -> Latencies:
    """Make requests as the load says; raises what they raise.

    ``open_stream`` is called in the thread of each stream; a single one has the caller's.
    """
    cores = sorted(os.sched_getaffinity(0))
    gate = threading.Barrier(load.streams)
    times: list[list[tuple[float, float]]] = [[] for _ in range(load.streams)]
    errors: list[BaseException] = []
    stopped = threading.Event()
    share = -(-load.iterations // load.streams)

    def work(stream: int) -> None:
        own = times[stream]
        try:
            if load.pin:
                os.sched_setaffinity(0, {cores[stream % len(cores)]})  # of this thread alone
            request = open_stream()
            for _ in range(load.warmup):
                request()
            gate.wait()
            end = time.perf_counter() + load.seconds
            while not stopped.is_set() and (len(own) < share or time.perf_counter() < end):
                start = clock()
                request()
                own.append((start, clock()))
        except BaseException as error:  # for the thread that waits
            errors.append(error)
            gate.abort()
        finally:
            if load.pin:
                os.sched_setaffinity(0, cores)

    if load.streams == 1:
        work(0)
    else:
        threads = [threading.Thread(target=work, args=(i,)) for i in range(load.streams)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:  # Ctrl-C: the threads would go on, and the process wait for them
            stopped.set()
            gate.abort()
            raise
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)), errors[0])
    return latencies_of([span for own in times for span in own])
