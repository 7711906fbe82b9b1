"""The instruction sets that kernels are compiled for."""

from __future__ import annotations

from dataclasses import replace

from convoy.target import InstructionSet, Target, host

SETS: list[InstructionSet] = ["portable", "avx2", "avx512"]
HOST_SETS = SETS[: SETS.index(host().isa) + 1]
"""Those this machine has."""


def of_bfloat16(isa: InstructionSet) -> Target:
    """For bfloat16: with the instruction where this machine has it, else widened."""
    features = host().features if isa == host().isa else frozenset[str]()
    return replace(Target(isa, features=features), bfloat16=True)
