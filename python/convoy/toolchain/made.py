"""What a compiler or linker made is looked at before anybody relies on it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

from convoy.errors import ToolchainError
from convoy.toolchain.driver import run
from convoy.toolchain.elf import OBJECT, find_fault


def look_at(
    step: str, what: str, made: Path, kind: int, symbols: Collection[str], command: Sequence[str]
) -> None:
    """Look at the file ``made`` by a ``command`` that says it succeeded.

    Parameters
    ----------
    kind, symbols
        As in ``elf.find_fault``.

    Raises
    ------
    ToolchainError
        If it is not what was asked for.
    """
    fault = find_fault(made, kind, symbols)
    if fault is not None:
        raise ToolchainError(
            step,
            what,
            f"{fault}, from {command[0]}, which said it succeeded",
            f"try it, or name another compiler in CC; the command was: {shlex.join(command)}",
        )


def run_to_make(
    command: list[str],
    what: str,
    made: Path,
    kind: int,
    symbols: Collection[str] = (),
    *,
    inputs: Sequence[Path] = (),
    text: str = "",
) -> None:
    """Run what makes the file ``made`` of ``inputs`` or of ``text``, and look at it.

    Raises
    ------
    ToolchainError
        If it fails, with the inputs that are to blame, or made something else.
    OSError
        If the disk is full.
    """
    complaint = run(command, text)
    if not complaint:
        look_at("link", what, made, kind, symbols, command)
        return
    bad = [str(path) for path in inputs if find_fault(path, OBJECT) or str(path) in complaint]
    blame = f"remove {', '.join(bad)} and try again; the command was: " if bad else ""
    raise ToolchainError(
        "link",
        what,
        f"expected {Path(command[0]).name} to succeed, got",
        blame + shlex.join(command),
        f"\n{complaint}\n",
    )
