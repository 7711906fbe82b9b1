"""The machine this process runs on, as far as its system tells without measuring."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from convoy.target.instructions import largest_set
from convoy.target.machines import GENERIC, MACHINES
from convoy.target.target import Target

_CPUINFO = Path("/proc/cpuinfo")
_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")

_INTEL_6: Mapping[str, tuple[int, ...]] = {
    "haswell": (0x3C, 0x3F, 0x45, 0x46, 0x3D, 0x47, 0x4F, 0x56),
    "skylake": (0x4E, 0x5E, 0x8E, 0x9E, 0xA5, 0xA6),
    "skylake-avx512": (0x55,),
    "icelake-client": (0x7D, 0x7E, 0x8C, 0x8D, 0xA7),
    "icelake-server": (0x6A, 0x6C),
    "alderlake": (0x97, 0x9A, 0xAA, 0xAC, 0xB5, 0xB7, 0xBA, 0xBD, 0xBF, 0xC5, 0xC6, 0xCC),
    "gracemont": (0xAF, 0xB6, 0xBE),
    "sapphirerapids": (0x8F, 0xCF),
    "graniterapids": (0xAD, 0xAE),
}
"""Models of Intel's family 6."""
_AMD_25_ZEN4 = (range(0x10, 0x20), range(0x60, 0x80), range(0xA0, 0xB0))
"""Models of AMD's family 25 that are Zen 4; the others are Zen 3."""
_ARM = {
    0xD08: "cortex-a72", 0xD0B: "cortex-a76", 0xD0C: "neoverse-n1", 0xD40: "neoverse-v1",
    0xD4F: "neoverse-v2",
}  # fmt: skip
"""Arm's own parts."""


@cache
def host() -> Target:
    """This machine: the row of its CPU, else a generic one, with the features, caches and cores it has."""
    told = read_cpuinfo()
    features = _features(told)
    isa = largest_set(features)
    generic = GENERIC[isa] if architecture_name(platform.machine()) == "x86_64" else MACHINES["portable"]
    row = MACHINES.get(find_row(told), generic)
    return replace(
        row, isa=isa, features=features, cores=_physical_cores(), l1_bytes=cache_bytes(1, row.l1_bytes),
        l2_bytes=cache_bytes(2, row.l2_bytes), l3_bytes=cache_bytes(3, row.l3_bytes), here=True,
    )  # fmt: skip


def find_row(told: Mapping[str, str]) -> str:
    """The name of the row of a CPU, from what ``/proc/cpuinfo`` tells of it; empty if there is none."""
    family, model = _number(told.get("cpu family")), _number(told.get("model"))
    vendor = told.get("vendor_id", "")
    if vendor == "GenuineIntel" and family == 6:
        name = next((name for name, models in _INTEL_6.items() if model in models), "")
        return "cascadelake" if name == "skylake-avx512" and _number(told.get("stepping")) >= 5 else name
    if vendor == "AuthenticAMD":
        zen4 = any(model in models for models in _AMD_25_ZEN4)
        zen = {23: 2 if model >= 0x30 else 1, 25: 4 if zen4 else 3, 26: 5}.get(family)
        return f"znver{zen}" if zen else ""
    if _number(told.get("CPU implementer")) == 0x41:
        return _ARM.get(_number(told.get("CPU part")), "")
    return ""


def cpu_facts() -> str:
    """All that the system tells of its CPU's model."""
    told = read_cpuinfo()
    named = ("vendor_id", "model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
    return ", ".join(told.get(name, "") for name in (*named, "flags", "Features"))


def architecture_name(name: str) -> str:
    """One name for what systems and LLVM call an architecture."""
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name.lower(), name.lower())


def cache_bytes(level: int, default: int, folder: Path = _CACHES) -> int:
    """Bytes of this machine's data cache of a level; ``default`` where the kernel does not say."""
    for index in folder.glob("index*"):
        with suppress(OSError, ValueError):
            kind = (index / "type").read_text("utf-8").strip()
            if kind != "Instruction" and (index / "level").read_text("utf-8").strip() == str(level):
                return int((index / "size").read_text("utf-8").strip().removesuffix("K")) << 10
    return default


def read_cpuinfo() -> dict[str, str]:
    """What the system tells of its first CPU."""
    told: dict[str, str] = {}
    with suppress(OSError):
        for line in _CPUINFO.read_text("utf-8").splitlines():
            name, colon, text = line.partition(":")
            if colon:
                told.setdefault(name.strip(), text.strip())
    return told


def _features(told: Mapping[str, str]) -> frozenset[str]:
    """By LLVM's names; those of x86 only where the CPU is one."""
    flags = told.get("flags" if architecture_name(platform.machine()) == "x86_64" else "Features", "")
    names = {"asimd": "neon", "asimddp": "dotprod", "fphp": "fullfp16"}
    names |= {flag: flag.replace("_", "-") for flag in flags.split() if flag.startswith("amx")}
    names |= {flag: flag.replace("_", "") for flag in flags.split() if flag.startswith("avx")}
    return frozenset(names.get(flag, flag) for flag in flags.split())


def _number(text: str | None) -> int:
    """A number in cpuinfo, decimal or 0x…; -1 where there is none."""
    with suppress(ValueError):
        return int(text or "", 0)
    return -1


def _physical_cores() -> int:
    cores = set()
    for cpu in os.sched_getaffinity(0):
        topology = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology")
        try:
            package = (topology / "physical_package_id").read_text("utf-8")
            cores.add((package, (topology / "core_id").read_text("utf-8")))
        except OSError:
            return len(os.sched_getaffinity(0))
    return len(cores)


def describe_cpu() -> str:
    """The CPU's name, cores and instruction set, e.g. ``AMD EPYC 9B14, 2 cores, avx512``."""
    name, own = read_cpuinfo().get("model name") or platform.machine(), host()
    return f"{name}, {own.cores} cores, {own.isa}"
