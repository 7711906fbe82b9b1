"""The host's own figures, measured in some 50 ms when it is first compiled for, and kept in the cache.

Each is the best of several runs shorter than a turn of the scheduler, so that a busy machine is read as an
idle one.  ``CONVOY_PROBE=0`` leaves the host with the figures of its row.
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
from convoy.target.figures import Figures, apply_figures
from convoy.target.this_machine import cpu_facts
from convoy.text import to_json
from convoy.toolchain.cache import open_cache
from convoy.toolchain.compiler import compile_objects, link_shared, runtime_sources

RUN_SECONDS, RUNS = 2e-4, 8
MEETINGS = 256
"""Launches of 16 barriers each, of some microseconds: in some both threads have a core."""
L1_FLOATS = 4096
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
    except (ConvoyError, OSError, ValueError, TypeError, KeyError) as problem:
        return target, f"the figures of its row: the probe failed: {problem}"


def load_probe() -> ctypes.CDLL:
    """The C functions of ``probe.c`` and ``probe_team.c``, compiled for this machine.

    Raises
    ------
    ToolchainError
        If there is no C compiler.
    """
    units = [*_sources(), *runtime_sources().values()]
    library = ctypes.CDLL(str(link_shared(compile_objects(units, host()))))
    second, floats, count = ctypes.c_double, ctypes.c_void_p, ctypes.c_ssize_t
    for name, arguments in {
        "clock": [second], "flops": [second], "bandwidth": [floats, count],
        "cached_bandwidth": [second, floats, count], "barrier": [ctypes.c_int],
    }.items():  # fmt: skip
        function = getattr(library, f"cv_machine_{name}")
        function.argtypes, function.restype = arguments, ctypes.c_double
    return library


def measure() -> Figures:
    """The figures of this machine now.

    Raises
    ------
    ToolchainError
        If there is no C compiler.
    """
    probe, machine = load_probe(), host()
    values = np.ones(MEMORY_FLOATS + 64, np.float32)
    x = values.ctypes.data + -values.ctypes.data % 256
    pieces = range(x, x + 2 * MEMORY_FLOATS, 4 * PIECE_FLOATS)
    memory = max(probe.cv_machine_bandwidth(piece, PIECE_FLOATS) for piece in pieces)
    clock = max(probe.cv_machine_clock(RUN_SECONDS) for _ in range(RUNS))
    flops = max(probe.cv_machine_flops(RUN_SECONDS) for _ in range(RUNS))
    l2_floats = machine.l2_bytes // 2 // 4096 * 1024
    l1, l2 = (
        max(probe.cv_machine_cached_bandwidth(RUN_SECONDS, x, floats) for _ in range(RUNS))
        for floats in (L1_FLOATS, l2_floats)
    )
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
    entry = open_cache(folder).fetch(key, ".json", lambda path: _write(path, measure()))
    return Figures(**json.loads(entry.read_text()))


def _write(path: Path, figures: Figures) -> None:
    path.write_text(to_json(asdict(figures)))


@cache
def _key() -> str:
    """By the model of the CPU, and what measures it."""
    machine = host()
    basis = (cpu_facts(), machine.isa, str(machine.l2_bytes), str(machine.cores > 1), *_sources())
    return hashlib.sha256("\0".join(basis).encode()).hexdigest()


def _sources() -> list[str]:
    return [Path(__file__).with_name(name).read_text() for name in ("probe.c", "probe_team.c")]
