"""Write an executable as a library, and say in one line why it could not be written."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from convoy.errors import ToolchainError

_TELLING = ("no space left", "permission denied", "read-only", "cannot", "error:", "failed")
"""What the telling line of a linker's output contains, most telling first."""


def export_library(executable: Any, path: Path) -> None:
    """``executable.export_library(path)`` with Convoy's errors.

    Parameters
    ----------
    executable : tvm.relax.VMExecutable
    Raises
    ------
    ToolchainError  if the library cannot be linked or written; no broken file is left behind
    """
    if not path.parent.is_dir():
        raise ToolchainError(
            "export", str(path), f"expected an existing folder, got {path.parent}", "make the folder first"
        )
    try:
        executable.export_library(str(path))
    except (OSError, RuntimeError) as error:
        with suppress(OSError):
            path.unlink()
        raise ToolchainError(
            "export",
            str(path),
            f"expected to write it, got {_telling_line(error)}",
            "check the folder's permissions and the free space there and in the temporary folder",
        ) from error


def _telling_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    for word in _TELLING:
        for line in lines:
            if word in line.lower() and "Command line" not in line:
                return line
    return lines[-1] if lines else type(error).__name__
