"""The C units of regions: compiled, and kept where the user wants to read them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from convoy.errors import ToolchainError
from convoy.options import Options
from convoy.target import Target
from convoy.text import file_name
from convoy.toolchain import compiler


def compile_units(
    units: Mapping[str, str],
    weights: Mapping[str, memoryview],
    target: Target,
    options: Options,
    progress: compiler.Progress,
) -> list[Path]:
    """The objects of C units by file name, in their order; ``options`` say where these are kept and cached.

    Raises
    ------
    ToolchainError
        If a unit cannot be compiled, or a folder cannot be written to.
    """
    if options.keep is not None:
        _keep(options.keep, units, weights)
    return compiler.compile_objects(
        list(units.values()), target, names=list(units), folder=options.cache, progress=progress
    )


def _keep(folder: Path, units: Mapping[str, str], weights: Mapping[str, memoryview]) -> None:
    """Write C units by file name, and each region's weights.

    Raises
    ------
    ToolchainError
        If the folder cannot be written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in units.items():
            (folder / file_name(name)).write_text(source, "utf-8")
        for symbol, data in weights.items():
            (folder / file_name(f"{symbol}_weights.bin")).write_bytes(data)
    except OSError as problem:
        raise ToolchainError(
            "keep",
            str(folder),
            f"expected a folder to write the generated C to, got {problem.strerror or problem}",
            "name another folder",
        ) from problem
