"""A process that does tasks, in any Python, with a time limit for each.

Not ``concurrent.futures``: a task that crashes or hangs is an outcome here, and must cost only itself.
Tasks and results are pickled; the work is named, ``module:function``, because the parent's Python may lack
what the worker's has (``.venv`` and ``.venv-relay`` have different TVMs).
"""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parent
_SAID = 600
"""Characters of what a process said at last."""


class Crash(Exception):
    """The process that worked on a task ended, or was ended at the time limit.

    ``said`` is the end of what it wrote to stderr.
    """

    def __init__(self, why: str, said: str = "") -> None:
        super().__init__(why)
        self.said = said


class Worker:
    """One process, started at once.

    Parameters
    ----------
    start : str | None
        Named function that is called first, in the new process.
    python : str | Path
        Its interpreter.
    environment : Mapping[str, str] | None
        Variables beside those of this process.
    """

    def __init__(
        self,
        start: str | None = None,
        python: str | Path = sys.executable,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.pipe, far = Pipe()
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        own = str(python) == sys.executable  # it may know modules by folders that were added since
        paths = [str(_TESTS), *filter(None, sys.path if own else [os.environ.get("PYTHONPATH")])]
        self.process = subprocess.Popen(
            [str(python), "-m", "worker", str(far.fileno())],
            pass_fds=[far.fileno()],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONFAULTHANDLER": "1",
                **(environment or {}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            start_new_session=True,  # Ctrl-C is the parent's business; what it started ends with it
        )
        far.close()
        self.pipe.send(start)
        self.alive = True
        self.since = time.monotonic()

    def give(self, work: str, task: Any) -> None:
        """Begin a task."""
        self.since = time.monotonic()
        self.pipe.send((work, task))

    def take(self) -> Any:
        """The task's result, when there is one; a ``Crash`` if the process ended instead."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            return self.end("the process died")

    def ask(self, work: str, task: Any, seconds: float) -> Any:
        """The result of a task, or a ``Crash``; after one the worker is of no more use."""
        try:
            self.give(work, task)
        except OSError:
            return self.end("the process died")
        if self.pipe.poll(seconds):
            return self.take()
        return self.end(f"no result in {seconds:g} s")

    def finish(self) -> None:
        """End it in good order: it removes its temporary files."""
        self.pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.end("done")

    def end(self, why: str) -> Crash:
        """End it and what it started."""
        try:
            code = self.process.wait(0.2) if why == "the process died" else self.process.poll()
        except subprocess.TimeoutExpired:
            code = None
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.pipe.close()
        self.alive = False
        if self._stderr.closed:
            return Crash(why)
        self._stderr.seek(0)
        said = self._stderr.read().decode(errors="replace")[-_SAID:]
        self._stderr.close()
        return Crash(why if code in (None, 0) else f"{why}, exit code {code}", said)


def find(name: str) -> Any:
    """The function ``module:function`` names."""
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


def _serve(pipe: Connection) -> None:
    try:
        start = pipe.recv()
        if start is not None:
            find(start)()
        while True:
            work, task = pipe.recv()
            pipe.send(find(work)(task))
    except EOFError:
        return


if __name__ == "__main__":
    _serve(Connection(int(sys.argv[1])))
