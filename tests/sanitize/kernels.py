"""The C tests of kernels and runtime under a sanitizer, through CMake."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from line import Line
from sanitize.build import FLAGS, SANITIZERS, run_program

ROOT = Path(__file__).parents[2]
SLOW = (
    "test_conv2d_direct", "test_conv2d_winograd", "test_conv2d_winograd_streamed",
    "test_conv2d_winograd_exact", "test_conv2d_groups", "test_conv2d_bytes",
)  # fmt: skip
"""Tests of kernels that take half a minute and more to build: three quarters of what all take."""


def build_c_tests(
    folder: Path, sanitizer: str, isas: list[str], *, kernels: bool, slow: bool
) -> Iterator[Callable[[], Line]]:
    """Build ``csrc/tests``: those of the runtime, and those of the kernels if asked for.

    Parameters
    ----------
    slow : bool
        Also the kernels' tests that take long to build.

    Returns
    -------
    Iterator[Callable[[], Line]]
        What runs each of them.
    """
    build = [
        "cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
        f"-DCONVOY_SANITIZE={SANITIZERS[sanitizer]}", f"-DCONVOY_SANITIZE_FLAGS={';'.join(FLAGS)}",
        f"-DCONVOY_INSTRUCTION_SETS={';'.join(isas)}",
    ]  # fmt: skip
    _run(build)
    programs = [
        f"runtime_{source.stem}" for source in sorted((ROOT / "csrc/tests/runtime").glob("test_*.c"))
    ]
    sources = sorted((ROOT / "csrc/tests").glob("test_*.c")) if kernels else []
    programs += [f"{source.stem}_{isa}" for source in sources if slow or source.stem not in SLOW
                 for isa in isas]  # fmt: skip
    start = time.monotonic()
    _run(["cmake", "--build", str(folder), "--parallel", "2", "--target", "loaded_library", *programs])
    built = Line(f"{sanitizer}: C tests", f"{len(programs)} built", True, time.monotonic() - start)
    yield lambda: built
    library = next((folder / "csrc").glob("libloaded_library.*"))
    for program in programs:
        room = "runtime" if program.startswith("runtime_") else "kernel"
        command = [str(folder / "csrc" / program), str(library)]
        yield partial(run_program, command, f"{sanitizer}: {room}", program)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
