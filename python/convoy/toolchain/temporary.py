"""The temporary folder of this process, and the error of one that finds nowhere to write."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from multiprocessing.util import Finalize
from pathlib import Path

from convoy.errors import ToolchainError
from convoy.toolchain.trust import check_own_folder, make_folder

_numbers = count()
_FULL = (None, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No number: a compiler said it, in words that ``driver.run`` knows."""


def temporary_folder() -> Path:
    """A folder of this process, removed when it ends.

    Raises
    ------
    ToolchainError
        If no temporary folder can be written.
    """
    folder = _temporary_folder(os.getpid())
    try:
        make_folder(folder)  # cleaners of /tmp remove it under a long-lived process
        check_own_folder(folder)  # and another user may then take its name
    except OSError as problem:
        raise unwritable(folder, problem) from problem
    return folder


def new_file(suffix: str) -> Path:
    """A name in it that no other file has; raises as ``temporary_folder``."""
    return temporary_folder() / f"{next(_numbers)}{suffix}"


@lru_cache(maxsize=1)
def _temporary_folder(_: int) -> Path:
    """The folder of the process of this number."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="convoy-"))
    except OSError as problem:
        raise unwritable(Path(os.environ.get("TMPDIR", "/tmp")), problem) from problem
    # not by atexit, which children of multiprocessing end without; one forked otherwise leaves it alone
    Finalize(None, shutil.rmtree, args=(folder,), kwargs={"ignore_errors": True}, exitpriority=0)
    return folder


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for the files of one step.

    Raises
    ------
    ToolchainError
        If something cannot be written within the block.
    """
    try:
        with tempfile.TemporaryDirectory(dir=temporary_folder()) as name:
            yield Path(name)
    except OSError as problem:
        raise unwritable(temporary_folder(), problem) from problem


def is_full(problem: OSError) -> bool:
    """Whether there is no room, rather than no way in."""
    return problem.errno in _FULL


def unwritable(folder: Path, problem: OSError) -> ToolchainError:
    """The error of a compilation that found nowhere to write: no room there, or no way in."""
    full = is_full(problem)
    return ToolchainError(
        "compile",
        str(folder),
        f"expected a folder {'with free space ' if full else ''}to write into, got "
        f"{problem.strerror or problem}",
        ("free disk space, or " if full else "")
        + f"point TMPDIR and CONVOY_CACHE_DIR to folders {'that have some' if full else 'you can write'}",
    )
