"""The instruction sets that kernels are compiled for."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TypeVar

from convoy.target import InstructionSet, Target, host

SETS: list[InstructionSet] = ["portable", "avx2", "avx512"]
HOST_SETS = SETS[: SETS.index(host().isa) + 1]
"""Those this machine has."""

Case = TypeVar("Case")


def in_turn(
    cases: Iterable[Case], first: int = 0, everywhere: Collection[Case] = ()
) -> list[tuple[Case, InstructionSet]]:
    """Each case with the widest set of this machine and with one other, by turns; some with all.

    A kernel is the same code on each set.
    """
    *others, widest = HOST_SETS
    numbered = [*enumerate(cases, first)]
    return [(case, widest) for _, case in numbered] + [
        (case, isa)
        for i, case in numbered
        for isa in others
        if case in everywhere or isa == others[i % len(others)]
    ]


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
