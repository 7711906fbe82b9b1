"""Write an executable as a library, and say in one line why it could not be written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from convoy.errors import ToolchainError
from convoy.toolchain.driver import find_compiler, run
from convoy.toolchain.elf import LIBRARY, find_fault

_TELLING = ("no space left", "permission denied", "read-only", "cannot", "error:", "failed")
"""What the telling line of a linker's output contains, most telling first."""


def export_library(executable: Any, path: Path) -> None:
    """``executable.export_library(path)`` with Convoy's compiler and errors.

    All or nothing: whatever happens, there is the new library or what was there before.

    Parameters
    ----------
    executable : tvm.relax.VMExecutable
        What ``convoy.compile`` or ``tvm.compile`` gave.

    Raises
    ------
    ToolchainError
        If the library cannot be linked or written.
    """
    check_destination(path)
    destination = path.resolve()  # a link stays one
    unfinished = destination.with_name(f".convoy-{token_hex(8)}.so")
    try:
        with explain_failure(path):
            executable.export_library(str(unfinished), fcompile=link)
            unfinished.replace(destination)
    finally:
        with suppress(OSError):
            unfinished.unlink()


@contextmanager
def explain_failure(path: Path) -> Iterator[None]:
    """Say in one line why a library could not be written.

    Raises
    ------
    ToolchainError
        If it is not written.
    """
    try:
        yield
    except (OSError, RuntimeError, ToolchainError, ValueError) as error:
        inner = error.__cause__ if isinstance(error, ToolchainError) and error.step == "export" else None
        raise ToolchainError(
            "export",
            str(path),
            f"expected to write it, got {_telling_line(inner or error)}",
            "check the folder's permissions and the free space there and in the temporary folder",
        ) from error


def check_destination(path: Path) -> None:
    """Say what is wrong with the name of a library, before anything is compiled.

    Raises
    ------
    ToolchainError
        If TVM would not load a file of this name, or its folder is missing.
    """
    check_place(path)
    if path.suffix != ".so":
        raise ToolchainError(
            "export",
            str(path),
            f"expected a name that ends in .so, by which TVM knows a library, got {path.name}",
            f"write to {path.stem}.so",
        )


def check_place(path: Path) -> None:
    """Say what is wrong with the place of a file, whatever its name ends in.

    Raises
    ------
    ToolchainError
        If it is no file, its folder is missing, or no file can have its name.
    """
    try:
        place = Path(os.path.realpath(path))  # a link's file may be elsewhere
        is_folder, is_other = place.is_dir(), place.exists() and not place.is_file()
    except (OSError, ValueError) as error:  # a name longer than any file's, or with a zero byte
        problem = getattr(error, "strerror", error)
        raise ToolchainError(
            "export", str(path), f"expected a name a file can have, got {problem}", "name another"
        ) from error
    if place.is_symlink():
        raise ToolchainError(
            "export", str(path), "expected a file, got a link that leads to itself", "name another"
        )
    if is_folder:
        raise ToolchainError("export", str(path), "expected a file, got a folder", "name a file in it")
    if is_other:
        raise ToolchainError("export", str(path), "expected a file, got a pipe or a device", "name another")
    if not place.parent.is_dir():
        missing = place.parent if path.is_symlink() else path.parent
        raise ToolchainError(
            "export", str(path), f"expected an existing folder, got {missing}", "make the folder first"
        )


def link(output: str, objects: Sequence[str], **_: Any) -> None:
    """The ``fcompile`` of TVM's ``export_library`` and ``jit``.

    TVM takes ``CC`` for one word; here it may carry arguments, as when a region is compiled.

    Raises
    ------
    OSError
        If the disk is full.
    RuntimeError
        If the linker fails.
    """
    compiler = find_compiler().command[0]
    complaint = run([*find_compiler().command, "-shared", "-fPIC", "-o", output, *objects], "")
    fault = complaint or find_fault(Path(output), LIBRARY)
    if fault:
        raise RuntimeError(complaint or f"{fault}, from {compiler}, which said it succeeded")


def _telling_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for word in _TELLING:
        for line in lines:
            if word in line.lower():
                return line
    return lines[-1] if lines else type(error).__name__
