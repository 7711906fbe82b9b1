"""Where the commands write: results on stdout, progress and errors on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

stdout = Console(highlight=False)
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
