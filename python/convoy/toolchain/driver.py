"""The compiler's command: found once, and run with its complaints as text."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from convoy.errors import ToolchainError
from convoy.text import line
from convoy.toolchain.process import execute

DEFAULT_SECONDS = 600.0
"""A compiler or linker may take for one file, however busy the machine; ``CONVOY_COMPILER_SECONDS``."""
_ASK_SECONDS = 60.0
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

    def known(self, flags: Sequence[str]) -> tuple[str, ...]:
        """``flags``, without those of AMX, which code can do without, if it is too old to know them."""
        amx = tuple(flag for flag in flags if flag.startswith("-mamx"))
        return tuple(flag for flag in flags if flag not in amx or _takes(self.command, amx))


def find_compiler() -> Compiler:
    """The C compiler of this environment: ``CC``, else gcc, clang or cc on the path.

    Raises
    ------
    ToolchainError
        If there is none, or ``CC`` does not work.
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


@lru_cache(maxsize=8)
def _takes(command: tuple[str, ...], flags: tuple[str, ...]) -> bool:
    return ask([*command, *flags, "-E", "-x", "c"], "/dev/null") != ""


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
        answer = execute([*command, question], seconds=min(_ASK_SECONDS, time_limit()))
    except OSError:
        return ""
    return answer.out if answer.code == 0 else ""


def time_limit() -> float:
    """Seconds a compiler or linker may take for one file.

    Raises
    ------
    ToolchainError
        If ``CONVOY_COMPILER_SECONDS`` is no number of seconds.
    """
    text = os.environ.get("CONVOY_COMPILER_SECONDS", "").strip()
    try:
        seconds = float(text) if text else DEFAULT_SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ToolchainError(
            "compile",
            "CONVOY_COMPILER_SECONDS",
            f"expected a number of seconds such as 600, got {text!r}",
            "correct it or unset it",
        )
    return seconds


def run(command: list[str], text: str) -> str:
    """The first lines of what ``command`` complains of; empty if it succeeds.

    Raises ``OSError`` for a full disk, whoever noticed it, and ``ToolchainError`` if the command cannot be
    started, takes longer than ``time_limit``, or somebody ended it: an interrupted compiler is not one that
    cannot.  It has the last lines of the complaints.
    """
    environment, seconds = {**os.environ, "LC_ALL": "C"}, time_limit()
    try:
        done = execute(command, text, seconds=seconds, environment=environment)
    except FileNotFoundError as problem:
        raise _no_compiler(f"{command[0]}, which is gone") from problem
    except TimeoutError as problem:
        raise ToolchainError(
            "compile",
            command[0],
            f"expected it to end within {seconds:g} s, got no end, and ended it",
            "where it is only slow, set CONVOY_COMPILER_SECONDS to more; else find out what it waits for: "
            + shlex.join(command),
        ) from problem
    except OSError as problem:
        raise ToolchainError(
            "compile",
            command[0],
            f"expected it to start, got {problem.strerror}",
            "try again; where memory or processes ran out, close other programs first",
        ) from problem
    if done.code == 0:
        return ""
    for no_room in _NO_ROOM:
        if no_room in done.err:
            raise OSError(no_room)
    lines = [line(words) for words in done.err.splitlines()]
    if done.code < 0 or _ENDED.search(done.err):
        words = "\n".join(lines[-_ERROR_LINES:])
        raise ToolchainError(
            "compile",
            command[0],
            f"expected it to run to its end, got {_signal(done.code)} that ended it",
            "try again; where memory ran out, close other programs first",
            f": {words}" if words else "",
        )
    lines = lines or [f"exit code {done.code}"]
    more = [f"… and {len(lines) - _ERROR_LINES} more lines"] if len(lines) > _ERROR_LINES else []
    return "\n".join(lines[:_ERROR_LINES] + more)


def _signal(returncode: int) -> str:
    """The signal that ended a process; without its name where that ended a part of it."""
    names = [known.name for known in signal.Signals if known == -returncode]
    return f"a signal ({names[0]})" if names else "a signal"
