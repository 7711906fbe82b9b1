"""The figures of a core that a probe reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figures:
    """Figures of one core; the defaults are what the probe reads on a Cascade Lake, as far as is known."""

    clock: float = 2.4e9
    """Cycles a second."""
    fma_units: float = 2.0
    """Vector multiply-adds a cycle."""
    load_units: float = 2.0
    """Vectors loaded from L1 a cycle."""
    l2: float = 40.0
    """Bytes a cycle loaded from L2."""
    memory: float = 4.6
    """Bytes a cycle loaded from memory, in order."""
    barrier: float = 500.0
    """Cycles for two threads to meet."""
