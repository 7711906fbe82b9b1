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


@contextmanager
def _fed(text: str) -> Iterator[int]:
    """The end to read of a pipe that a thread writes ``text`` to.

    ``communicate`` does not go on with an input after it has timed out (Python 3.13): a program that
    begins to read late, as on a busy machine, would wait for the rest for ever.
    """
    taken, given = os.pipe()

    def feed() -> None:
        with suppress(OSError), open(given, "wb") as pipe:  # it may end before it has read all
            pipe.write(text.encode(errors="replace"))

    threading.Thread(target=feed, name="convoy-feed", daemon=True).start()
    try:
        yield taken
    finally:
        os.close(taken)


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
    with _fed(text) as given, subprocess.Popen(
        command, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        encoding="utf-8", errors="replace", cwd=folder, env=environment, start_new_session=True,
    ) as process:  # fmt: skip
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    out, err = process.communicate(timeout=_LOOK_SECONDS)
                    return Outcome(process.returncode, out, err)
                if stop.is_set():
                    raise StoppedError(command[0])
                if time.monotonic() > end:
                    raise TimeoutError(f"no end within {seconds:g} s")
        except BaseException:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
