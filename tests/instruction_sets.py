"""The instruction sets that kernels are compiled for."""

from __future__ import annotations

from convoy.target import InstructionSet, host

SETS: list[InstructionSet] = ["portable", "avx2", "avx512"]
HOST_SETS = SETS[: SETS.index(host().isa) + 1]
"""Those this machine has."""
