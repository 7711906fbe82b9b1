"""Children of this process that may be killed, limited and starved: what they leave behind is what counts.

A child is a fork of this process, which has TVM and Convoy imported and has done nothing with them, so that
it starts in milliseconds.  It leads a process group of its own: a kill takes the compilers it started, too.
"""

from __future__ import annotations

import gc
import os
import pickle
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

SECONDS = 600.0
"""Time limit of a child that is not killed before: a busy machine, not a slow child, is what uses it."""

SPEECHLESS = 70
"""Status of a child that had not even the memory to say what went wrong."""


@dataclass(frozen=True)
class Outcome:
    """How a child ended."""

    value: Any = None
    """What its function returned, or the text of the ``ConvoyError`` it raised."""
    kind: str = "done"
    """``done``, ``refused`` (a ``ConvoyError``), ``killed`` by us, or ``failed``."""

    @property
    def failure(self) -> str:
        """What was wrong with it; empty if nothing was."""
        return str(self.value) if self.kind == "failed" else ""


class Child:
    """``function()`` in a process of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        sys.stdout.flush()
        read, write = os.pipe()
        self.since = time.monotonic()
        self.id = os.fork()
        if self.id == 0:
            os.setpgid(0, 0)
            os.close(read)
            _serve(function, write)
        os.close(write)
        self._pipe = read

    def kill(self) -> None:
        """End it and all it started, as the kernel does when memory runs out."""
        for group in (-self.id, self.id):
            try:
                os.kill(group, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue

    def wait(self, seconds: float = SECONDS, *, kill_after: float | None = None) -> Outcome:
        """Its outcome; ``kill_after`` seconds from its start it is killed."""
        limit = self.since + (seconds if kill_after is None else kill_after)
        data, late = b"", False
        while True:
            left = limit - time.monotonic()
            ready = select.select([self._pipe], [], [], max(left, 0))[0]
            if not ready:
                late = True
                break
            part = os.read(self._pipe, 1 << 20)
            if not part:
                break
            data += part
        self.kill()
        _, status = os.waitpid(self.id, 0)
        os.close(self._pipe)
        if late:
            return (
                Outcome(kind="killed")
                if kill_after is not None
                else Outcome(f"not done after {seconds:g} s", "failed")
            )
        if not data:
            return Outcome(f"it ended with status {os.waitstatus_to_exitcode(status)}", "failed")
        return pickle.loads(data)


def run_in_child(function: Callable[[], Any], seconds: float = SECONDS) -> Outcome:
    """Start a child and wait for it."""
    return Child(function).wait(seconds)


def _serve(function: Callable[[], Any], pipe: int) -> None:
    """The child's whole life: it never goes on with what the parent does next."""
    gc.freeze()  # a parent's garbage may be a session, which would wait for threads that are not here
    try:
        data = pickle.dumps(_run(function))
        while data:
            data = data[os.write(pipe, data) :]
        os._exit(0)
    finally:
        os._exit(SPEECHLESS)


def _run(function: Callable[[], Any]) -> Outcome:
    from convoy.errors import ConvoyError

    try:
        return Outcome(function())
    except ConvoyError as error:
        return Outcome(str(error), "refused")
    except BaseException:
        return Outcome(traceback.format_exc()[-2000:], "failed")
