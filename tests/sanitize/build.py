"""Compile C with a sanitizer and run it, without Python inside: a sanitizer wants the whole process.

``-O0``: optimised, the unrolled tiles with a check at every access take GCC more than ten times as long
(test_conv2d_direct.c: 35 s of CPU time, and not done after 400 s on a busy machine; GCC 12, 2026-11-23),
and what the sanitizers find is there without optimisation, too.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from convoy.toolchain.compiler import kernel_include_dirs
from line import Line

SANITIZERS = {"address": "address,undefined", "thread": "thread"}
"""By the name they are asked for: what the compiler calls them."""
FLAGS = ("-O0", "-g", "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
SECONDS = 900
"""Time limit of one program."""

_SETTINGS = {
    # Returned frames are not looked for: GCC 12 keeps them in blocks that are not aligned for a vector of
    # 64 bytes and stores to them as if they were, which ends the program (GCC's bug 110027).
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=0:strict_string_checks=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}


def compile_program(
    units: Sequence[Path], objects: Sequence[Path], program: Path, sanitizer: str, flags: Sequence[str]
) -> None:
    """Compile C units and link them with objects.

    Raises
    ------
    RuntimeError
        If the compiler refuses one.
    """
    includes = [f"-I{folder}" for folder in kernel_include_dirs()]
    common = [
        "gcc",
        "-std=gnu11",
        "-pthread",
        *FLAGS,
        f"-fsanitize={SANITIZERS[sanitizer]}",
        *includes,
        *flags,
    ]

    def compile_unit(unit: Path) -> Path:
        made = program.with_name(f"{program.name}-{unit.stem}.o")
        _run_compiler([*common, "-c", str(unit), "-o", str(made)])
        return made

    made = [compile_unit(unit) for unit in units]
    _run_compiler([*common, *map(str, (*made, *objects)), "-lm", "-ldl", "-o", str(program)])


def _run_compiler(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")


def run_program(command: Sequence[str], test: str, size: str, start: float | None = None) -> Line:
    """Run a program with a sanitizer in it; ``start``: when its building began, if that counts."""
    start = time.monotonic() if start is None else start
    environment = {**os.environ, **_SETTINGS, "CONVOY_HUGE_PAGES": "1"}
    try:
        done = subprocess.run(
            list(command),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            env=environment,
        )
        good, text = done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    except subprocess.TimeoutExpired:
        good, text = False, f"not done after {SECONDS} s"
    return Line(test, size, good, time.monotonic() - start, "" if good else f"\n{text}")
