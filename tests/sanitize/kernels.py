"""The C tests of kernels and runtime under a sanitizer, through CMake."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from line import Line
from sanitize.build import FLAGS, SANITIZERS, run_program

ROOT = Path(__file__).parents[2]


def sanitize_c_tests(
    folder: Path, sanitizer: str, isas: list[str], *, kernels: bool, slow: bool
) -> Iterator[Line]:
    """Build and run ``csrc/tests``: those of the runtime, and those of the kernels if asked for.

    Parameters
    ----------
    slow : bool
        Also the kernels' tests that take minutes to build.
    """
    build = [
        "cmake", "-S", str(ROOT), "-B", str(folder), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=None",
        f"-DCONVOY_SANITIZE={SANITIZERS[sanitizer]}", f"-DCONVOY_SANITIZE_FLAGS={';'.join(FLAGS)}",
        f"-DCONVOY_INSTRUCTION_SETS={';'.join(isas)}",
    ]  # fmt: skip
    _run(build)
    for source in sorted((ROOT / "csrc/tests/runtime").glob("test_*.c")):
        yield _build_and_run(folder, f"runtime_{source.stem}", "runtime", sanitizer)
    for source in sorted((ROOT / "csrc/tests").glob("test_*.c")) if kernels else ():
        if slow or source.stem not in ("test_conv2d_direct", "test_conv2d_winograd"):
            for isa in isas:
                yield _build_and_run(folder, f"{source.stem}_{isa}", "kernel", sanitizer)


def _build_and_run(folder: Path, program: str, room: str, sanitizer: str) -> Line:
    start = time.monotonic()
    _run(["cmake", "--build", str(folder), "--parallel", "2", "--target", program, "loaded_library"])
    library = next((folder / "csrc").glob("libloaded_library.*"))
    return run_program(
        [str(folder / "csrc" / program), str(library)], f"{sanitizer}: {room}", program, start
    )


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-4000:]}{done.stderr[-2000:]}")
