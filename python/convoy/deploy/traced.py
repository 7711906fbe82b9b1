"""Run what was compiled to be traced: when each step of a region and each call of TVM's began and ended."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax

from convoy.deploy.export import link

EVENT = np.dtype(
    [("name", "u8"), ("begin", "f8"), ("end", "f8"), ("step", "i4"), ("thread", "i4")], align=True
)
"""``cv_event`` (``convoy/trace.h``)."""
_ROOM = 1 << 12


@dataclass(frozen=True)
class Event:
    """A step of a region on one thread, or (``step`` -1) a call of TVM's virtual machine."""

    name: str
    """The region's, or that of the function which is called."""
    step: int
    thread: int
    begin: float
    end: float
    """Seconds on the clock of ``time.perf_counter``."""


@dataclass(frozen=True)
class Trace:
    """One run."""

    begin: float
    end: float
    events: tuple[Event, ...]
    """In the order in which they began."""

    @property
    def seconds(self) -> float:
        return self.end - self.begin


@dataclass(frozen=True)
class Recording:
    """One run as it was written down.  Reading it takes longer than a short run does."""

    begin: float
    end: float
    raw: NDArray[Any] | tuple[Event, ...]
    """``EVENT``, or calls that Python saw; each as it ended."""
    names: dict[int, str] = field(repr=False)
    """By their addresses; grows as events are read."""

    @property
    def seconds(self) -> float:
        return self.end - self.begin

    def read(self) -> Trace:
        if isinstance(self.raw, tuple):
            return Trace(self.begin, self.end, tuple(sorted(self.raw, key=lambda event: event.begin)))
        events = np.sort(self.raw, order="begin", kind="stable").tolist()
        return Trace(self.begin, self.end, tuple(self._event(*event) for event in events))

    def _event(self, address: int, begin: float, end: float, step: int, thread: int) -> Event:
        if address not in self.names:
            self.names[address] = ctypes.string_at(address).decode(errors="replace")
        return Event(self.names[address], step, thread, begin, end)


class _Calls:
    """What ``convoy_trace_call`` does, for a module without regions."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._begun: list[float] = []

    def see(self, _: Any, name: str, before: bool, *__: Any) -> None:
        if before:
            self._begun.append(time.perf_counter())
        else:
            self.events.append(Event(name, -1, 0, self._begun.pop(), time.perf_counter()))


class TracedRunner:
    """An executable whose regions are traced, ready to be called with and without somebody listening.

    Parameters
    ----------
    executable : tvm.relax.VMExecutable
        Compiled with ``offload.settings.traced`` in force.
    inputs : Sequence[NDArray[Any]]
        In the model's order.
    """

    def __init__(self, executable: Any, inputs: Sequence[NDArray[Any]]) -> None:
        module = executable.jit(fcompile=link)
        self._inputs = [tvm.runtime.tensor(array) for array in inputs]
        self._plain, self._watched = (relax.VirtualMachine(module, tvm.cpu()) for _ in range(2))
        self._trace, self._calls = None, _Calls()
        if module.implements_function("convoy_trace", query_imports=True):
            self._trace = module.get_function("convoy_trace", query_imports=True)
            self._watched.set_instrument(module.get_function("convoy_trace_call", query_imports=True))
        else:  # there is no region
            self._watched.set_instrument(self._calls.see)
        self._events = np.empty(_ROOM, EVENT)
        self._names: dict[int, str] = {}

    def run(self) -> float:
        """One run while nobody listens; its seconds."""
        begin = time.perf_counter()
        self._plain["main"](*self._inputs)
        return time.perf_counter() - begin

    def trace(self) -> Recording:
        """One run, listened to."""
        main = self._watched["main"]
        if self._trace is None:
            self._calls.events.clear()
            begin = time.perf_counter()
            main(*self._inputs)
            end = time.perf_counter()
            return Recording(begin, end, tuple(self._calls.events), self._names)
        self._trace(self._events.ctypes.data, len(self._events))
        begin = time.perf_counter()
        main(*self._inputs)
        end = time.perf_counter()
        count = self._trace(0, 0)
        if count > len(self._events):
            self._events = np.empty(2 * count, EVENT)
            return self.trace()
        return Recording(begin, end, self._events[:count].copy(), self._names)
