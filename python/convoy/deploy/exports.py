"""Exported libraries kept between runs, so that a second session, demo or benchmark starts in seconds.

A library's key is a hash of all that went into it: the model and its external data, the compiler's
settings, the CPU, the versions of TVM and ONNX, and the files of Convoy that take part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from convoy.deploy.export import link
from convoy.onnx_file import digest_file
from convoy.target.this_machine import describe_cpu
from convoy.toolchain.cache import Cache, open_cache
from convoy.toolchain.compiler import kernel_include_dirs

_PACKAGE = Path(__file__).parents[1]
_SUFFIXES = ("*.py", "*.h", "*.c", "*.j2")


def exported_library(
    model: Path | bytes, settings: str, sources: Sequence[Path], build: Callable[[], Any]
) -> Path:
    """The library of ``build()``, exported now or by an earlier run with the same arguments.

    Parameters
    ----------
    model : Path | bytes
        ONNX file, or what stands in one.
    settings : str
        Whatever else the result depends on, e.g. ``Convoy threads=2``.
    sources : Sequence[Path]
        Files and folders of Convoy that the result depends on.
    build : Callable[[], Any]
        Makes the ``tvm.relax.VMExecutable``.

    Raises
    ------
    ModelError
        If the model cannot be read.
    ToolchainError
        If the library cannot be written.
    """
    key = hashlib.sha256(model if isinstance(model, bytes) else digest_file(model))
    for part in (settings, describe_cpu(), *_versions(), _fingerprint(tuple(sources))):
        key.update(b"\0" + part.encode())
    # a folder of its own: while the entry is made, compiling takes locks of the compile cache
    common = open_cache()
    libraries = Cache(common.folder / "exports", common.limit)

    def make(path: Path) -> None:
        build().export_library(str(path), fcompile=link)

    library = libraries.fetch(key.hexdigest(), ".so", make)
    libraries.trim()
    return library


def sources_of_libraries() -> list[Path]:
    """The files of Convoy that a library depends on."""
    rooms = (p for p in _PACKAGE.iterdir() if p.name not in ("bench", "cli", "zoo", "__pycache__"))
    return [*sorted(rooms), *kernel_include_dirs()]


@cache
def _versions() -> tuple[str, ...]:
    found = []
    for package in ("apache-tvm", "apache-tvm-ffi", "onnx"):
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:  # a TVM built from source
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
