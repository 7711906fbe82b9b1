"""The compiler's command: found once, and run with its complaints as text."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from convoy.errors import ToolchainError

_ERROR_LINES = 12
_NO_ROOM = ("No space left on device", "Disk quota exceeded", "File too large", "File size limit exceeded")
"""What compilers and linkers say when there is no room for what they write."""
_ENDED = re.compile(r"(Killed|Interrupt|Terminated|Hangup) signal terminated program")
"""What GCC says when somebody ended a part of it; the kernel does where memory runs out."""


@dataclass(frozen=True)
class Compiler:
    command: tuple[str, ...]
    """With the arguments ``CC`` may carry."""
    identity: str
    """Version and machine: two compilers that may make different code differ here."""
    is_gcc: bool
    """GCC itself, not a compiler that only answers to its name."""
    guards: tuple[str, ...]
    """Flags without which it makes wrong code."""


def find_compiler() -> Compiler:
    """The C compiler of this environment: ``CC``, else gcc, clang or cc on the path.

    Raises
    ------
    ToolchainError  if there is none, or ``CC`` does not work
    """
    return _find_compiler(os.environ.get("CC", ""), os.environ.get("PATH", ""))


@lru_cache(maxsize=8)
def _find_compiler(named: str, path: str) -> Compiler:
    try:
        candidates = [shlex.split(named)] if named.strip() else [["gcc"], ["clang"], ["cc"]]
    except ValueError as problem:
        raise _no_compiler(f"CC={named!r}, which is no command: {problem}") from None
    for command in candidates:
        if shutil.which(command[0], path=path) is None:
            continue
        version = ask(command, "--version")
        machine = ask(command, "-dumpmachine")
        if version and machine:
            identity = f"{version.splitlines()[0]} {machine.strip()}"
            is_gcc = "Free Software Foundation" in version
            guards = _gcc_guards(ask(command, "-dumpversion")) if is_gcc else ()
            return Compiler(tuple(command), identity, is_gcc, guards)
    raise _no_compiler(f"CC={named!r}, which does not run" if named.strip() else "none of gcc, clang, cc")


def _gcc_guards(version: str) -> tuple[str, ...]:
    """Flags that keep GCC from leaving out the calls of functions it wrongly takes for pure.

    GCC 12 writes some loads of a loop as 0 + an index, takes them for loads from NULL, and concludes that
    nothing after them is ever stored (2026-11-21).  Without null pointer checks it does not either, but
    that cost ResNet-50 2 %.
    """
    major = version.strip().partition(".")[0]
    has_modref = not major.isdecimal() or int(major) >= 11
    return ("-fno-ipa-pure-const", "-fno-ipa-modref") if has_modref else ("-fno-ipa-pure-const",)


def _no_compiler(found: str) -> ToolchainError:
    return ToolchainError(
        "compile",
        "C compiler",
        f"expected gcc or clang on the path, got {found}",
        "install one (Debian, Ubuntu: apt install gcc; Fedora: dnf install gcc; "
        "Alpine: apk add build-base; conda: conda install c-compiler), or name one in CC",
    )


def ask(command: Sequence[str], question: str) -> str:
    """What ``command`` prints when asked; empty if it fails."""
    try:
        answer = subprocess.run([*command, question], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return answer.stdout if answer.returncode == 0 else ""


def run(command: list[str], text: str) -> str:
    """The first lines of what ``command`` complains of; empty if it succeeds.

    Raises ``OSError`` for a full disk, whoever noticed it, and ``ToolchainError`` if somebody ended the
    command: an interrupted compiler is not one that cannot.  It has the last lines of the complaints.
    """
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, errors="replace", env=environment
        )
    except FileNotFoundError as problem:
        raise _no_compiler(f"{command[0]}, which is gone") from problem
    if done.returncode == 0:
        return ""
    for no_room in _NO_ROOM:
        if no_room in done.stderr:
            raise OSError(no_room)
    lines = done.stderr.splitlines()
    if done.returncode < 0 or _ENDED.search(done.stderr):
        words = "\n".join(lines[-_ERROR_LINES:])
        raise ToolchainError(
            "compile",
            command[0],
            f"expected it to run to its end, got {_signal(done.returncode)} that ended it",
            "try again; where memory ran out, close other programs first",
            f": {words}" if words else "",
        )
    lines = lines or [f"exit code {done.returncode}"]
    more = [f"… and {len(lines) - _ERROR_LINES} more lines"] if len(lines) > _ERROR_LINES else []
    return "\n".join(lines[:_ERROR_LINES] + more)


def _signal(returncode: int) -> str:
    """The signal that ended a process; without its name where that ended a part of it."""
    names = [known.name for known in signal.Signals if known == -returncode]
    return f"a signal ({names[0]})" if names else "a signal"
