"""The machine a region is compiled for: instruction set, vector width, caches, cores."""

from __future__ import annotations

import os
import platform
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from convoy.errors import TargetError

InstructionSet = Literal["portable", "avx2", "avx512"]

LANES: dict[InstructionSet, int] = {"portable": 4, "avx2": 8, "avx512": 16}
"""float32 elements a vector."""

FLAGS: dict[InstructionSet, tuple[str, ...]] = {
    "portable": (),
    "avx2": ("-mavx2", "-mfma"),
    "avx512": (
        "-mavx2", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl",
        "-mprefer-vector-width=512",
    ),
}  # fmt: skip
"""Compiler flags of each instruction set."""

_NEEDS: dict[InstructionSet, frozenset[str]] = {
    "portable": frozenset(),
    "avx2": frozenset({"avx2", "fma"}),
    "avx512": frozenset({"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}),
}
"""What a CPU must have, as Linux and LLVM call it."""

_AVX512 = (
    "skylake-avx512", "cascadelake", "cooperlake", "cannonlake", "icelake-client", "icelake-server",
    "rocketlake", "tigerlake", "sapphirerapids", "emeraldrapids", "graniterapids", "znver4",
    "znver5", "x86-64-v4",
)  # fmt: skip
_AVX2 = (
    "haswell", "broadwell", "skylake", "alderlake", "raptorlake", "meteorlake", "core-avx2",
    "gracemont", "sierraforest", "grandridge", "arrowlake", "arrowlake-s", "lunarlake", "pantherlake",
    "znver1", "znver2", "znver3", "bdver4", "knl", "knm", "x86-64-v3",
)  # fmt: skip
"""Also CPUs with a part of AVX-512: those with its F alone, and with AVX-VNNI but no AVX-512 at all."""
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_OTHER_SYSTEMS = ("android", "darwin", "freebsd", "ios", "macos", "msvc", "netbsd", "openbsd", "win")
_PORTABLE = ("", "generic", "x86-64", "x86-64-v2", "portable", "nehalem", "sandybridge")


@dataclass(frozen=True)
class Target:
    """A CPU, as far as planning and code generation care."""

    isa: InstructionSet
    l2_bytes: int = 1 << 20
    """Of one core."""
    cores: int = 2
    """Threads the planner expects; the library asks its machine again."""

    @property
    def lanes(self) -> int:
        return LANES[self.isa]

    @property
    def registers(self) -> int:
        """Vector registers."""
        return 32 if self.isa == "avx512" else 16

    @property
    def accumulators(self) -> int:
        """Vector registers a tile may hold results in; the rest feed them."""
        return 28 if self.isa == "avx512" else 12

    @property
    def flags(self) -> tuple[str, ...]:
        return FLAGS[self.isa]


@cache
def host() -> Target:
    """The machine this process runs on."""
    return Target(_most(_cpu_flags()), cache_bytes(2, 1 << 20), _physical_cores())


def from_mcpu(mcpu: str | None, mtriple: str = "", features: Sequence[str] = ()) -> Target:
    """The target an LLVM ``mcpu`` names; None, ``native`` and ``host`` mean this machine.

    Parameters
    ----------
    mtriple : LLVM's name of a system, such as ``x86_64-linux-gnu``; empty: this one
    features : added to and taken from those of the CPU, as ``+avx2`` and ``-avx512f`` in LLVM's ``mattr``
    Raises
    ------
    TargetError  if Convoy does not know the name, or ``mtriple`` names another architecture or system than
        this one
    """
    _check_triple(mtriple)
    named = _named(mcpu)
    has = set(_NEEDS[named.isa])
    for feature in features:
        sign, name = feature[:1], feature[1:]
        if sign == "+":
            has |= {name, *_NEEDS["avx2"], "avx512f"} if name.startswith("avx512") else {name}
        else:
            has -= _NEEDS["avx2"] if name == "avx" else {name}
    return replace(named, isa=_most(has))


def _named(mcpu: str | None) -> Target:
    if mcpu is None or mcpu in ("native", "host"):
        return host()
    for isa, names in (("avx512", _AVX512), ("avx2", _AVX2), ("portable", _PORTABLE)):
        if mcpu in names:
            return Target(isa, cores=host().cores)  # type: ignore[arg-type]
    known = ", ".join(sorted(_AVX512 + _AVX2 + _PORTABLE[1:]))
    raise TargetError(
        "target", f"mcpu {mcpu!r}", f"expected one of {known}", "name one of them, or leave mcpu out"
    )


def _check_triple(mtriple: str) -> None:
    first, *rest = mtriple.lower().split("-")
    architecture, here = _architecture(first), _architecture(platform.machine())
    if architecture not in ("", here):
        raise TargetError(
            "target",
            f"mtriple {mtriple!r}",
            f"expected {here}, the architecture of this machine, got {architecture}",
            "compile on a machine of that architecture",
        )
    others = [part for part in rest if part.startswith(_OTHER_SYSTEMS)]
    if others:
        raise TargetError(
            "target",
            f"mtriple {mtriple!r}",
            f"expected linux, got {others[0]}",
            "compile for linux: libraries are made by this machine's compiler and linker",
        )


def cpu_name(llvm_name: str) -> str:
    """``llvm_name``, an LLVM's name of this machine's CPU; if that LLVM is older than the CPU and calls it
    generic, the oldest CPU with its vectors, so that what TVM compiles has them too."""
    if llvm_name != "generic":
        return llvm_name
    return {"avx512": _AVX512[0], "avx2": _AVX2[0], "portable": llvm_name}[host().isa]


def _most(features: Collection[str]) -> InstructionSet:
    """The largest instruction set a CPU of these features has."""
    return [isa for isa in LANES if _NEEDS[isa] <= set(features)][-1]


def _architecture(name: str) -> str:
    """One name for what systems and LLVM call an architecture."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name.lower(), name.lower())


def _cpu_flags() -> set[str]:
    if _architecture(platform.machine()) != "x86_64":
        return set()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return set(line.split(":", 1)[1].split())
    return set()


def cache_bytes(level: int, default: int, folder: Path = _CACHES) -> int:
    """Size of this machine's data cache of a level; ``default`` where the kernel does not say, as on many
    ARM machines."""
    for index in folder.glob("index*"):
        with suppress(OSError, ValueError):
            kind = (index / "type").read_text().strip()
            if kind != "Instruction" and (index / "level").read_text().strip() == str(level):
                return int((index / "size").read_text().strip().removesuffix("K")) << 10
    return default


def _physical_cores() -> int:
    cores = set()
    for cpu in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            package = (topology / "physical_package_id").read_text()
            cores.add((package, (topology / "core_id").read_text()))
        except OSError:
            return len(os.sched_getaffinity(0))
    return len(cores)
