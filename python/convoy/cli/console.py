"""Where the commands write: results on stdout, progress and errors on stderr."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

PIPED = 160
"""Columns of a table that goes to a file or another program, which has no width of its own."""

stdout = Console(highlight=False)
if not stdout.is_terminal and "COLUMNS" not in os.environ:
    stdout = Console(highlight=False, width=PIPED)
stderr = Console(stderr=True, highlight=False)


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Show the latest line of what happens, with a spinner on a terminal.

    Not on a terminal, each new line is printed once, so that logs show it too.
    """
    if stderr.is_terminal:
        with stderr.status(title) as status:
            yield lambda text: status.update(f"{title}: {text}")
        return
    last = ""

    def show(text: str) -> None:
        nonlocal last
        if text != last:
            stderr.print(f"{title}: {text}", markup=False, soft_wrap=True)
            last = text

    yield show
