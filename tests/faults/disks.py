"""Disks that are full or read-only, at the cache, at the temporary folder, at the library."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from faults.child import Outcome, run_in_child
from faults.network import compile_and_run
from line import Line
from mutants.judge import unclear

SIZES = (0, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 65536)
"""Sizes of disks and of the largest file, in KB: from none to enough."""


def fill_disks(folder: Path, sizes: tuple[int, ...] = SIZES) -> Line:
    """Compile on small disks: right, or one clear line; and right where there is room for all."""
    start = time.monotonic()
    outcomes = []
    for number, size in enumerate(sizes):
        with _disk(folder / f"disk{number}", max(size, 4)) as disk:
            if disk is None:
                return Line("full disks", "none", True, 0.0, "left out: mounting needs root")
            (disk / "filled").write_bytes(b"\0" * (4096 if size == 0 else 0))
            outcomes.append(run_in_child(lambda d=disk, n=number: _compile_in(d, d, 600 + n)))
    return _judge("full disks", f"{len(sizes)} from {sizes[0]} KB to {sizes[-1]} KB", outcomes, start)


def limit_files(folder: Path, sizes: tuple[int, ...] = SIZES) -> Line:
    """The same by the largest file a process may write, which needs no root."""
    start = time.monotonic()
    outcomes = []
    for number, size in enumerate(sizes):

        def limited(bytes_: int = size << 10, n: int = number) -> bool:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))
            return _compile_in(folder / f"files{n}", folder / f"files{n}", 620 + n)

        (folder / f"files{number}").mkdir()
        outcomes.append(run_in_child(limited))
    return _judge("largest file", f"{len(sizes)} from {sizes[0]} KB to {sizes[-1]} KB", outcomes, start)


def write_protect(folder: Path) -> Line:
    """A read-only cache costs time alone; a read-only library folder is one line."""
    start = time.monotonic()
    outcomes = []
    with _disk(folder / "readonly", 65536) as disk:
        if disk is None:
            return Line("read-only disks", "none", True, 0.0, "left out: mounting needs root")
        run_in_child(lambda: _compile_in(disk, folder, 640))  # a cache with something in it
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for variant in (640, 641):
            outcomes.append(run_in_child(lambda v=variant: _compile_in(disk, folder, v)))
        refused = run_in_child(lambda: compile_and_run(640, disk / "network.so"))
    line = _judge(
        "read-only disks", "cache with and without the entry, library", outcomes, start, all_right=True
    )
    if refused.kind != "refused" or unclear(str(refused.value)):
        return Line(line.test, line.size, False, line.seconds, f"a library on it: {refused}")
    return line


def _compile_in(cache: Path, temporary: Path, variant: int) -> bool:
    import tempfile

    os.environ["CONVOY_CACHE_DIR"] = str(cache / "cache")
    os.environ["TMPDIR"] = str(temporary)
    tempfile.tempdir = None
    return compile_and_run(variant, temporary / "network.so")


def _judge(test: str, size: str, outcomes: list[Outcome], start: float, *, all_right: bool = False) -> Line:
    wrong = []
    for i, outcome in enumerate(outcomes):
        right = outcome.kind == "done" and outcome.value is True
        clear = outcome.kind == "refused" and not unclear(str(outcome.value))
        if not right and (all_right or not clear or i == len(outcomes) - 1):
            wrong.append(f"{i}: {outcome}")
    right = sum(outcome.kind == "done" for outcome in outcomes)
    said = f"{size}; {right} compiled, {len(outcomes) - right} refused in one line"
    return Line(
        test, said if not wrong else size, not wrong, time.monotonic() - start, "; ".join(wrong[:4])
    )


@contextmanager
def _disk(folder: Path, kilobytes: int) -> Iterator[Path | None]:
    """A disk in memory, mounted for the block; None where that is not allowed."""
    folder.mkdir()
    options = f"size={kilobytes}k,mode=700"
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True
    )
    if done.returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False, capture_output=True)
