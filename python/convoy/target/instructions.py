"""The instruction sets the kernels are written for, and what a CPU must have for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

InstructionSet = Literal["portable", "avx2", "avx512"]


@dataclass(frozen=True)
class Instructions:
    """What ``csrc/simd`` makes of an instruction set."""

    lanes: int
    """float32 elements of a vector."""
    registers: int
    """Vector registers."""
    accumulators: int
    """Vector registers in which a tile may hold results; the rest feed them."""
    needs: frozenset[str]
    """Features a CPU must have, by LLVM's names."""
    flags: tuple[str, ...]
    """The compiler's flags."""


_AVX2 = ("avx2", "fma")
_CHAIN = ("sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2", "avx")
"""Features of x86, each of which stands on the one before."""
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")


def _flags(features: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"-m{feature}" for feature in features)


INSTRUCTIONS: Mapping[InstructionSet, Instructions] = {
    "portable": Instructions(4, 16, 12, frozenset(), ()),
    "avx2": Instructions(8, 16, 12, frozenset(_AVX2), _flags(_AVX2)),
    "avx512": Instructions(16, 32, 28, frozenset(_AVX512), (*_flags(_AVX512), "-mprefer-vector-width=512")),
}
"""From the smallest set to the largest.  ``portable`` is C with vectors of four, for any architecture: it
has no flags, and the registers that each of them has at least."""


def largest_set(features: Collection[str]) -> InstructionSet:
    """The largest instruction set that a CPU with these features has."""
    return [isa for isa, one in INSTRUCTIONS.items() if one.needs <= set(features)][-1]


def complete(features: Iterable[str]) -> frozenset[str]:
    """Features with all that they stand on."""
    found = set(features)
    for feature in features:
        found |= complete(_basis(feature))
    return frozenset(found)


def change_features(features: Iterable[str], changes: Iterable[str]) -> frozenset[str]:
    """``features`` after changes such as ``+avx2`` and ``-avx512f``, as LLVM's ``mattr`` has them.

    What a feature stands on comes with it, and what stands on a feature goes with it.
    """
    has = complete(features)
    for change in changes:
        sign, name = change[:1], change[1:]
        kept = (one for one in has if name not in complete({one}))
        has = has | complete({name}) if sign == "+" else frozenset(kept)
    return has


def _basis(feature: str) -> tuple[str, ...]:
    """The features that a CPU with ``feature`` has in any case."""
    if feature.startswith("avx512"):
        return _AVX2 if feature == "avx512f" else ("avx512f",)
    if feature in _CHAIN[1:]:
        return (_CHAIN[_CHAIN.index(feature) - 1],)
    return ("avx",) if feature in ("fma", "f16c") or feature.startswith("avx") else ()
