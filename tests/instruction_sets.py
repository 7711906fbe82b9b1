"""The instruction sets that kernels are compiled for."""

from __future__ import annotations

from dataclasses import replace

from convoy.target import InstructionSet, Target, host

SETS: list[InstructionSet] = ["portable", "avx2", "avx512"]
HOST_SETS = SETS[: SETS.index(host().isa) + 1]
"""Those this machine has."""


def of_free_winograd(target: Target) -> Target:
    """With Winograd convolutions in integers that take no time."""
    costs = replace(
        target.winograd, shorts=0.0, call=0.0, l2_line=0.0, input_line=(0.0,) * 3, output_line=(0.0,) * 3,
        weight_line=0.0, hidden_weight_line=0.0, hidden_reading=0.0, scratch_byte=0.0, shared_byte=0.0,
    )  # fmt: skip
    return replace(target, winograd=costs, memory_rate=1e9, barrier=0.0)


def of_bfloat16(isa: InstructionSet) -> Target:
    """For bfloat16: with the instruction where this machine has it, else widened."""
    features = host().features if isa == host().isa else frozenset[str]()
    return replace(Target(isa, features=features), bfloat16=True)
