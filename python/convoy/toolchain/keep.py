"""Keep the generated C and weights where the user wants to read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from convoy.errors import ToolchainError


def keep_units(folder: Path, units: Mapping[str, str], weights: Mapping[str, memoryview]) -> None:
    """Write C units by file name, and each region's weights.

    Raises
    ------
    ToolchainError  if the folder cannot be written to
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in units.items():
            (folder / name).write_text(source)
        for symbol, data in weights.items():
            (folder / f"{symbol}_weights.bin").write_bytes(data)
    except OSError as problem:
        raise ToolchainError(
            "keep",
            str(folder),
            f"expected a folder to write the generated C to, got {problem.strerror or problem}",
            "name another folder",
        ) from problem
