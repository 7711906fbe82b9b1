"""What was measured before, in the compile cache.

The key holds everything the times depend on: the convolution with its epilogue, the candidates, the
target, the threads, the compiler, and the hash of what turns a choice into C.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from convoy.target import Target
from convoy.text import to_json
from convoy.toolchain.cache import open_cache
from convoy.toolchain.compiler import kernel_include_dirs
from convoy.toolchain.driver import find_compiler

SUFFIX = ".tuned"
ROOMS = ("graph", "plan", "codegen", "tune")
"""Rooms of the package that decide and write the C of a trial."""

Times = dict[str, float]
"""Seconds of each candidate."""


def make_key(what: str, candidates: Iterable[str], target: Target, threads: int) -> str:
    """The key of a convolution described by ``what``."""
    basis = (what, *candidates, repr(target), str(threads), find_compiler().identity, generator_hash())
    return hashlib.sha256("\0".join(basis).encode()).hexdigest()


def find(key: str, folder: Path | None) -> Times | None:
    """The times of ``key``; None if they were not measured, or the entry is damaged."""
    path = open_cache(folder).find(key, SUFFIX)
    return None if path is None else dict(json.loads(path.read_text("utf-8")))


def keep(key: str, folder: Path | None, times: Times) -> Times:
    """Remember ``times``; those of another process, if it was first.

    Raises
    ------
    ToolchainError
        If nowhere can be written.
    """
    path = open_cache(folder).fetch(key, SUFFIX, lambda file: _write(file, times))
    return dict(json.loads(path.read_text("utf-8")))


def _write(path: Path, times: Times) -> None:
    path.write_text(to_json(times), "utf-8")


@cache
def generator_hash() -> str:
    """Hash of the sources of the planner, the code generator and the kernels."""
    package = Path(__file__).parents[1]
    folders = [*(package / room for room in ROOMS), *kernel_include_dirs()]
    files = sorted({f for folder in folders for end in ("py", "h", "c") for f in folder.rglob(f"*.{end}")})
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()
