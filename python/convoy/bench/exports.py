"""Exported libraries kept between runs, so that a second demo or benchmark starts in seconds.

A library's name is a hash of all that went into it: the model's bytes, the compiler's
settings, TVM's version and the files of Convoy that take part. Old ones go when the folder grows too large.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from convoy.errors import ToolchainError
from convoy.toolchain.cache import cache_folder

LIMIT_BYTES = 4 << 30
"""Size the folder may have; VGG-19 alone is 0.6 GB."""

_SUFFIXES = ("*.py", "*.h", "*.c", "*.j2")


def exported_library(
    model: bytes, settings: str, sources: Sequence[Path], build: Callable[[], Any]
) -> Path:
    """The library of ``build()``, exported now or by an earlier run with the same arguments.

    Parameters
    ----------
    model : the serialised model
    settings : whatever else the result depends on, e.g. ``convoy threads=2``
    sources : files and folders of Convoy that the result depends on
    build : makes the ``tvm.relax.VMExecutable``
    Raises
    ------
    ToolchainError  if the library cannot be written
    """
    key = hashlib.sha256(model)
    for part in (settings, *_versions(), _fingerprint(tuple(sources))):
        key.update(b"\0" + part.encode())
    folder = cache_folder() / "exports"
    library = folder / f"{key.hexdigest()[:40]}.so"
    if library.exists():
        os.utime(library)
        return library
    executable = build()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            fresh = Path(scratch) / "library.so"
            executable.export_library(str(fresh))
            os.replace(fresh, library)
        _evict(folder, keep=library)
    except OSError as error:
        raise ToolchainError(
            "export",
            str(library),
            f"expected to write it, got {error}",
            "free some space, or set CONVOY_CACHE",
        ) from error
    return library


def _evict(folder: Path, keep: Path) -> None:
    """Delete the libraries used longest ago until the rest fits ``LIMIT_BYTES``."""
    total = 0
    libraries = sorted(folder.glob("*.so"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in libraries:
        total += path.stat().st_size
        if total > LIMIT_BYTES and path != keep:
            path.unlink(missing_ok=True)


@cache
def _versions() -> tuple[str, ...]:
    found = []
    for package in ("apache-tvm", "apache-tvm-ffi", "onnx"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            found.append(package)
    return tuple(found)


@cache
def _fingerprint(sources: tuple[Path, ...]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        files = [source] if source.is_file() else sorted(p for s in _SUFFIXES for p in source.rglob(s))
        for path in files:
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
