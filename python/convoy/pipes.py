"""Reading files that may be pipes, as those of a shell's ``<(…)``, without waiting for ever."""

from __future__ import annotations

import io
import os
import select
from pathlib import Path

PIPE_SECONDS = 10
"""Waited for the first byte of a pipe: nobody may ever write one."""


def read_file(path: Path) -> bytes:
    """All bytes of a file; of a pipe, what somebody writes into it.

    Raises
    ------
    OSError
        If it cannot be read, has no end, or is a pipe that nobody writes into.
    """
    if path.is_char_device() and not path.samefile(os.devnull):
        raise OSError(0, "a device, which may have no end")
    if not path.is_fifo():
        return path.read_bytes()
    pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    with os.fdopen(pipe, "rb") as file:
        waiting = select.poll()
        waiting.register(pipe, select.POLLIN)
        if not waiting.poll(1000 * PIPE_SECONDS):
            raise OSError(0, f"a pipe into which nobody wrote for {PIPE_SECONDS} s")
        os.set_blocking(pipe, True)
        return file.read()


def seekable(path: Path) -> Path | io.BytesIO:
    """A file for readers that go back in it, as they cannot in a pipe; raises as ``read_file``."""
    return io.BytesIO(read_file(path)) if path.is_fifo() else path
