"""Running another program: with a time limit, and ended with all that it started."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_LOOK_SECONDS = 0.2
"""How often a thread that waits for a program looks whether it should stop."""
_of_thread = threading.local()


@dataclass(frozen=True)
class Outcome:
    """What a program that ended left."""

    code: int
    """Its exit code; the negative number of the signal that ended it."""
    out: str
    err: str


class StoppedError(Exception):
    """The program was ended because what it was for is no longer wanted."""


@contextmanager
def stopped_by(event: threading.Event) -> Iterator[None]:
    """End the program that this thread waits for, within the block, when ``event`` is set.

    Ctrl-C reaches the main thread alone, and a program that may be ended with all it started not at all.
    """
    _of_thread.stop = event
    try:
        yield
    finally:
        del _of_thread.stop


def execute(
    command: Sequence[str],
    text: str = "",
    *,
    seconds: float,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Run ``command`` without a shell, with ``text`` as its input.

    Parameters
    ----------
    seconds : float
        After which it is ended, with every process it started.
    folder : Path | None
        Where it runs.
    environment : Mapping[str, str] | None
        Its variables; None: those of this process.

    Raises
    ------
    TimeoutError
        If it did not end in time.
    StoppedError
        If it was stopped.
    OSError
        If it cannot be started.
    """
    stop: threading.Event = getattr(_of_thread, "stop", None) or threading.Event()
    end = time.monotonic() + seconds
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", cwd=folder, env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        given: str | None = text
        try:
            while True:
                try:
                    out, err = process.communicate(given, timeout=_LOOK_SECONDS)
                    return Outcome(process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    given = None  # it goes on with what it was given
                if stop.is_set():
                    raise StoppedError(command[0])
                if time.monotonic() > end:
                    raise TimeoutError(f"no end within {seconds:g} s")
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
