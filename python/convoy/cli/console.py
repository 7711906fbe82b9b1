"""Where the commands write: results on stdout, progress and errors on stderr.

Nothing else writes to a terminal.  Names from outside are made harmless twice: by who puts them in a line
or a table (``report/sheet.py``), where a line end in a name would be one on the screen, and here, whatever
is printed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from convoy.errors import ModelError
from convoy.report.sheet import block, plain
from convoy.text import lines, to_json

_SECONDS_A_LINE = 1.0
"""Between two lines of progress in a log."""
WIDEST = 100_000
"""Columns of a terminal, at most: a line of more is more memory than there is."""
PIPED = 160
"""Columns of a table that goes to a file or another program, which has no width of its own."""


class _Screen(Console):
    """A console that prints what it is given: no markup, no escape sequences but its own."""

    def __init__(self, **given: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **given)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(lines(segment.text), segment.style)


def _open(**given: Any) -> _Screen:
    screen = _Screen(**given)
    known = screen.is_terminal or "COLUMNS" in os.environ
    if not 1 <= screen.width <= WIDEST:  # COLUMNS=0, with which nothing would be printed
        return _Screen(**given, width=PIPED)
    return screen if known else _Screen(**given, width=PIPED)


_stdout, _stderr = _open(), _open(stderr=True)
_is_quiet = False


def be_quiet() -> None:
    """From now on there is no progress, and no line beside a result."""
    global _is_quiet
    _is_quiet = True


def show(result: RenderableType, *, soft_wrap: bool = False) -> None:
    """Print a result: a table, or a report.  ``soft_wrap``: its lines are as long as they are."""
    _stdout.print(result, soft_wrap=soft_wrap)


def say(text: str) -> None:
    """Print a result that is one line, however long."""
    _stdout.print(plain(text), soft_wrap=True)


def print_json(data: Any) -> None:
    """Print a result for programs."""
    _stdout.print(block(to_json(data, indent=2)), soft_wrap=True)


def note(text: str) -> None:
    """Print a line beside the results, if that is wanted."""
    if _is_quiet:
        return
    _stderr.print(plain(text), soft_wrap=True)


def print_error(text: object) -> None:
    """An error, whose own text is one line; the words of another program follow on lines of their own."""
    _stderr.print(block(f"error: {text}"), style="red", soft_wrap=True)


def print_warning(text: object) -> None:
    """A warning is one line."""
    _stderr.print(plain(f"warning: {text}"), style="yellow", soft_wrap=True)


def expect_file(path: Path | None, option: str, *read: Path | str | None) -> None:
    """Try whether the file that ``option`` names can be written, before the work whose result goes there.

    Parameters
    ----------
    read : Path | str | None
        Files that are none of its business: a model that is read, with the files of its external data,
        and what other options name.

    Raises
    ------
    ModelError
        If it cannot.
    """
    if path is None:
        return
    expect_own_file(path, option, *read)
    try:
        place = Path(os.path.realpath(path))  # where a link points to, which may not be there yet
        new = not _is_there(place)
        if not new and not place.is_file() and not place.is_dir():  # such as a pipe
            return
        place.open("ab").close()
        if new:
            place.unlink()
    except OSError as error:
        raise _unwritable(path, option, error) from error


def expect_own_file(path: Path, option: str, *read: Path | str | None) -> None:
    """Expect that ``option`` names none of the files that are ``read``, nor of a model's external data.

    Raises
    ------
    ModelError
        If it names one, by whatever path.
    """
    if not read:
        return
    from convoy.onnx_file import model_files  # not for a command without a model

    others = [file for other in read if other is not None for file in model_files(Path(other))]
    if any(_are_same(path, other) for other in others):
        problem, remedy = "expected a file of its own, got one that is named twice", "name another file"
        raise ModelError("write", f"{option} {path}", problem, remedy)


def _is_there(path: Path) -> bool:
    """``Path.exists``, of which each version of Python takes other errors for an answer."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _are_same(path: Path, other: Path) -> bool:
    """Do two paths lead to one file, or would they, and to none such as /dev/stdout?"""
    try:
        return os.path.samefile(path, other) and path.is_file()
    except OSError:  # one is not there, or could not be
        return os.path.realpath(path) == os.path.realpath(other)


def write_file(path: Path, data: str | bytes, option: str) -> None:
    """Write a result into the file that ``option`` names.

    Raises
    ------
    ModelError
        If it cannot be written.
    """
    try:
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise _unwritable(path, option, error) from error


def _unwritable(path: Path, option: str, error: OSError) -> ModelError:
    return ModelError(
        "write",
        f"{option} {path}",
        f"expected a file to write, got {error.strerror or error}",
        "name another file, in a folder that is there",
    )


def take_over() -> None:
    """Print what Python itself would, names made plain: warnings in one line, and unexpected errors.

    What an output's encoding does not have is a question mark there.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    warnings.showwarning = _show_warning
    sys.excepthook = _show_traceback


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    print_warning(message)


def _show_traceback(kind: type[BaseException], error: BaseException, place: TracebackType | None) -> None:
    sys.stderr.write(lines("".join(traceback.format_exception(kind, error, place))))


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """Show the latest line of what happens, with a spinner on a terminal.

    Not on a terminal, a log gets at most one line a second: what takes longer is in it.
    """
    if _stderr.is_terminal and not _is_quiet:
        with _stderr.status(plain(title)) as status:
            yield lambda text: status.update(plain(f"{title}: {text}"))
        return
    log = _Log(title)
    try:
        yield log.tell
    finally:
        log.end()


class _Log:
    """Prints the first line at once; of later ones the latest, a second after the one before."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._printed = self._latest = ""
        self._next = 0.0
        """When a line may be printed again, by the monotonic clock."""
        self._timer: threading.Timer | None = None
        self._lock = threading.Lock()

    def tell(self, text: str) -> None:
        with self._lock:
            self._latest = text
            if self._timer is not None:
                return
            wait = self._next - time.monotonic()
            if wait <= 0:
                self._print()
            else:
                self._timer = threading.Timer(wait, self._time_is_up)
                self._timer.daemon = True
                self._timer.start()

    def end(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._latest = self._printed

    def _time_is_up(self) -> None:
        with self._lock:
            self._timer = None
            self._print()

    def _print(self) -> None:
        if self._latest == self._printed:
            return
        note(f"{self._title}: {self._latest}")
        self._printed = self._latest
        self._next = time.monotonic() + _SECONDS_A_LINE
