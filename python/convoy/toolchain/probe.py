"""The host's own figures, measured in some 0.2 s when it is first compiled for, and kept in the cache.

Half of that is the C compiler's.  Each is the best of several runs, shorter than a turn of the scheduler
and spread over the probe, so that a busy machine is read as an idle one.  ``CONVOY_PROBE=0`` leaves the
host with the figures of its row.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
from dataclasses import asdict
from functools import cache, lru_cache
from pathlib import Path

import numpy as np

from convoy.errors import ConvoyError
from convoy.target import Target, host
from convoy.target.figures import Figures
from convoy.target.measured import apply_figures
from convoy.target.this_machine import cpu_facts
from convoy.text import to_json
from convoy.toolchain.cache import open_cache
from convoy.toolchain.compiler import compile_objects, link_shared, runtime_sources

RUN_SECONDS, RUNS = 2e-4, 8
MEETINGS = 256
"""Launches of 16 barriers each, of some microseconds: in some both threads have a core."""
L1_FLOATS = 4096
_FAILURES = (
    ConvoyError, OSError, ValueError, TypeError, KeyError, AttributeError, MemoryError, RuntimeError,
)  # fmt: skip
"""What a compiler, a loader, a file of the cache, or too little memory or threads may end it with."""
MEMORY_FLOATS, PIECE_FLOATS = 16 << 20, 1 << 20
"""What is written, 64 MB, and what of it is read at a time: from its first half, which is in no cache by
then."""


def as_measured(target: Target, folder: Path | None = None) -> tuple[Target, str]:
    """The target with the figures of the probe, if it is this machine; and where its figures are from.

    Parameters
    ----------
    target : Target
        Any; a named CPU is returned as it is.
    folder : Path | None
        Folder of the cache; None: the user's.
    """
    if not target.here or os.environ.get("CONVOY_PROBE", "").strip() == "0":
        return target, ""
    try:
        return apply_figures(target, _find_figures(folder))
    except _FAILURES as problem:
        return target, f"the figures of its row: the probe failed: {problem}"


def load_probe(folder: Path | None = None) -> ctypes.CDLL:
    """The C functions of ``probe.c`` and ``probe_team.c``, compiled for this machine.

    Parameters
    ----------
    folder : Path | None
        Folder of the cache; None: the user's.

    Raises
    ------
    ToolchainError
        If there is no C compiler.
    """
    units = [*_sources(), *runtime_sources().values()]
    library = ctypes.CDLL(str(link_shared(compile_objects(units, host(), folder=folder))))
    second, floats, count = ctypes.c_double, ctypes.c_void_p, ctypes.c_ssize_t
    for name, arguments in {
        "clock": [second], "flops": [second], "bandwidth": [floats, count],
        "cached_bandwidth": [second, floats, count], "barrier": [ctypes.c_int],
    }.items():  # fmt: skip
        function = getattr(library, f"cv_machine_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_double
    return library


def measure(folder: Path | None = None) -> Figures:
    """The figures of this machine now.

    Parameters
    ----------
    folder : Path | None
        Folder of the cache; None: the user's.

    Raises
    ------
    ToolchainError
        If there is no C compiler.
    """
    probe, machine = load_probe(folder), host()
    values = np.ones(MEMORY_FLOATS + 64, np.float32)
    x = values.ctypes.data + -values.ctypes.data % 256
    pieces = range(x, x + 2 * MEMORY_FLOATS, 4 * PIECE_FLOATS)
    memory = max(probe.cv_machine_bandwidth(piece, PIECE_FLOATS) for piece in pieces)
    l2_floats = machine.l2_bytes // 2 // 4096 * 1024
    rounds = [
        (
            probe.cv_machine_clock(RUN_SECONDS),
            probe.cv_machine_flops(RUN_SECONDS),
            probe.cv_machine_cached_bandwidth(RUN_SECONDS, x, L1_FLOATS),
            probe.cv_machine_cached_bandwidth(RUN_SECONDS, x, l2_floats),
        )
        for _ in range(RUNS)
    ]
    clock, flops, l1, l2 = map(max, zip(*rounds, strict=True))
    met = [probe.cv_machine_barrier(2) for _ in range(MEETINGS)] if machine.cores > 1 else []
    vector = 4 * machine.lanes
    return Figures(
        clock=clock,
        fma_units=flops / (2 * machine.lanes) / clock,
        load_units=l1 / vector / clock,
        l2=l2 / clock,
        memory=memory / clock,
        barrier=min((seconds for seconds in met if seconds > 0), default=machine.expected.barrier / clock)
        * clock,
    )


def _find_figures(folder: Path | None) -> Figures:
    """From this process, else from the cache, else measured."""
    return _read(open_cache(folder).folder, _key())


@lru_cache(maxsize=4)
def _read(folder: Path, key: str) -> Figures:
    entry = open_cache(folder).fetch(key, ".json", lambda path: _write(path, measure(folder)))
    return Figures(**json.loads(entry.read_text("utf-8")))


def _write(path: Path, figures: Figures) -> None:
    path.write_text(to_json(asdict(figures)), "utf-8")


@cache
def _key() -> str:
    """By the model of the CPU, and what measures it."""
    machine = host()
    basis = (cpu_facts(), machine.isa, str(machine.l2_bytes), str(machine.cores > 1), *_sources())
    return hashlib.sha256("\0".join(basis).encode()).hexdigest()


def _sources() -> list[str]:
    return [Path(__file__).with_name(name).read_text("utf-8") for name in ("probe.c", "probe_team.c")]
