"""The machine's own speed, measured between the rounds: FMA peak and memory bandwidth.

A FLOP bound only means something beside times of the same minute: on a shared machine both move.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from convoy.toolchain.probe import load_probe

PEAK_SECONDS = 0.02
BURST_SECONDS, BURSTS = 0.0005, 40
READ_BYTES = 256 << 20
"""Bytes that all threads together read; several times the last-level cache."""


@dataclass(frozen=True)
class Rates:
    """What all threads together did."""

    flops: float
    """FLOP/s of multiply-adds in registers."""
    bandwidth: float
    """Bytes/s read from memory."""


class Machine:
    """A probe for ``threads`` threads; with ``cpu_time`` only the time they have a core counts.

    Raises
    ------
    ToolchainError
        If there is no C compiler.
    """

    def __init__(self, threads: int, *, cpu_time: bool = False) -> None:
        library = load_probe()
        if cpu_time:
            library.cv_machine_use_cpu_time()
        self._flops, self._read = library.cv_machine_flops, library.cv_machine_bandwidth
        self._pool = ThreadPoolExecutor(threads)
        self._threads = threads
        count = READ_BYTES // 4 // threads // 256 * 256
        # ones, not zeros: untouched pages would all be one page of zeros, which is always in cache
        self._arrays = [np.ones(count, np.float32) for _ in range(threads)]

    def measure(self) -> Rates:
        """Peak and bandwidth now, in about 0.05 s.  ctypes lets the threads run at once."""
        flops = sum(self._pool.map(self._flops, [PEAK_SECONDS] * self._threads))
        bandwidth = sum(self._pool.map(lambda x: self._read(x.ctypes.data, x.size), self._arrays))
        return Rates(flops, bandwidth)

    def best_flops(self) -> float:
        """The peak, from bursts so short that some find an idle core on a busy machine."""
        return self._threads * max(float(self._flops(BURST_SECONDS)) for _ in range(BURSTS))


def load_average() -> float:
    """Processes that wanted a core in the last minute."""
    return os.getloadavg()[0]
