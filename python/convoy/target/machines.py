"""The table of machines: a row a CPU, by LLVM's name.

Sources: vector pipes, latencies and loads a cycle from uops.info, the software optimization guides of AMD
(family 17h to 1Ah), Intel (248966) and Arm (Neoverse N1, V1, V2, Cortex-A72, A76), and LLVM 19's
scheduling models, as llvm-mca reads them; caches from the vendors' data sheets and Chips and Cheese.  The
manuals count where LLVM has another CPU's model: for servers since Ice Lake (one 512-bit multiply-add of
two), Zen 5 (Zen 4's), Gracemont (a large core's), Zen 1 and 2 (their loads), and Arm before Neoverse V2
(that a sum is forwarded late: 2 cycles of 4, Cortex-A72's 3 of 7).  Cores are those of a usual slice of a
server, or of a usual client; whoever knows better says so (``Options.cores``, ``Options.l2_bytes``).
Clocks are those under vector load on all cores.  What a row does not say is as on Cascade Lake, which was
measured (``target.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from convoy.target.figures import Figures
from convoy.target.instructions import InstructionSet, complete, largest_set
from convoy.target.kernels import CacheShares, DirectCosts, WinogradCosts
from convoy.target.target import Target

_KB, _MB = 1 << 10, 1 << 20

_HASWELL = ("avx2", "fma")
_SKYLAKE_X = (*_HASWELL, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_CASCADE_LAKE = (*_SKYLAKE_X, "avx512vnni")
_ICE_LAKE = (*_CASCADE_LAKE, "avx512ifma", "avx512vbmi", "avx512vbmi2", "avx512bitalg", "avx512vpopcntdq")
_SAPPHIRE = (*_ICE_LAKE, "avx512bf16", "avx512fp16", "avxvnni", "amx-tile", "amx-bf16", "amx-int8")
_ZEN4 = (*_ICE_LAKE, "avx512bf16")
_KNIGHTS = (*_HASWELL, "avx512f", "avx512cd")
_ALDER_LAKE = (*_HASWELL, "avxvnni")
_ARM = ("neon", "dotprod", "fullfp16")
_ARM_SVE = (*_ARM, "sve", "bf16", "i8mm")

_ZEN3_WINOGRAD = WinogradCosts(
    efficiency=(0.85, 0.97, 0.87, 0.78), channel=0.3, call=35.0, input_line=(7.0, 7.0, 9.0),
    output_line=(5.0, 5.0, 7.0), hidden_weight_line=1.4, streamed_products=18.0, streamed_rest=7.0,
    streamed_weights=30.0, shorts=1.4,
)  # fmt: skip
"""Fitted to 25 schedules of convolutions in a row, 64 to 512 channels, one thread, 2026-11-25
(docs/lab/winograd.md); ``shorts`` to 55 of bytes (docs/lab/bytes-without-vnni.md)."""
_AVX2_WINOGRAD = WinogradCosts(shorts=2.0)
"""One vpmaddwd a cycle; on Skylake two, with the sums on three pipes."""


_ZEN3_DIRECT = DirectCosts(load=0.05, run=15.0, kept_gain=1.0, dequantize=1.15, quantize=1.7)
"""Tiles: 35 convolutions of 1x1, each in all tilings, one thread (docs/lab/direct-convolutions.md).
Conversions: six maps of 53,000 to 2,000,000 values, 0.10 and 0.155 ns each, one thread.  2026-11-26."""


def _row(name: str, features: tuple[str, ...], *, architecture: str = "x86_64", **figures: Any) -> Target:
    return Target(
        largest_set(features), name=name, architecture=architecture, features=complete(features), **figures
    )


def _arm(name: str, features: tuple[str, ...], **figures: Any) -> Target:
    """A row of aarch64, computed by the portable kernels until there are some for NEON."""
    return _row(name, features, architecture="aarch64", fma_pipe_bytes=16, load_pipe_bytes=16, **figures)


_ROWS = (
    _row("portable", (), architecture=""),
    _row("x86-64", ()),
    _row("x86-64-v3", _HASWELL, winograd=_AVX2_WINOGRAD),
    _row("x86-64-v4", _SKYLAKE_X),
    _row("haswell", _HASWELL, cores=4, l2_bytes=256 * _KB, l3_bytes=8 * _MB, clock=3.2e9,
         fma_pipe_bytes=32, fma_latency=5.0, load_pipe_bytes=32, winograd=_AVX2_WINOGRAD),
    _row("skylake", _HASWELL, cores=4, l2_bytes=256 * _KB, l3_bytes=8 * _MB, clock=3.6e9,
         fma_pipe_bytes=32, load_pipe_bytes=32, winograd=WinogradCosts(shorts=1.4)),
    _row("alderlake", _ALDER_LAKE, cores=8, l1_bytes=48 * _KB, l2_bytes=1280 * _KB, clock=4.4e9,
         fma_pipe_bytes=32, load_pipes=3, load_pipe_bytes=32),
    _row("raptorlake", _ALDER_LAKE, cores=8, l1_bytes=48 * _KB, l2_bytes=2 * _MB, l3_bytes=36 * _MB,
         clock=4.8e9, fma_pipe_bytes=32, load_pipes=3, load_pipe_bytes=32),
    _row("lunarlake", _ALDER_LAKE, cores=4, l1_bytes=48 * _KB, l2_bytes=2560 * _KB, l3_bytes=12 * _MB,
         clock=4.4e9, fma_pipe_bytes=32, load_pipes=3, load_pipe_bytes=32),
    _row("gracemont", _ALDER_LAKE, cores=4, l2_bytes=512 * _KB, l3_bytes=16 * _MB, clock=3.2e9,
         fma_pipe_bytes=16, fma_latency=6.0, load_pipe_bytes=16),
    _row("skylake-avx512", _SKYLAKE_X, cores=8, clock=2.2e9),
    _row("cascadelake", _CASCADE_LAKE, cores=8),
    _row("icelake-client", _ICE_LAKE, cores=4, l1_bytes=48 * _KB, l2_bytes=512 * _KB, l3_bytes=8 * _MB,
         clock=3.3e9, fma_pipe_bytes=32),
    _row("tigerlake", _ICE_LAKE, cores=4, l1_bytes=48 * _KB, l2_bytes=1280 * _KB, l3_bytes=12 * _MB,
         clock=3.8e9, fma_pipe_bytes=32),
    _row("icelake-server", _ICE_LAKE, cores=8, l1_bytes=48 * _KB, l2_bytes=1280 * _KB, l3_bytes=48 * _MB,
         clock=2.7e9),
    _row("sapphirerapids", _SAPPHIRE, cores=8, l1_bytes=48 * _KB, l2_bytes=2 * _MB, l3_bytes=105 * _MB,
         clock=2.8e9),
    _row("graniterapids", (*_SAPPHIRE, "amx-fp16"), cores=8, l1_bytes=48 * _KB, l2_bytes=2 * _MB,
         l3_bytes=432 * _MB, clock=2.8e9),
    _row("znver1", _HASWELL, cores=8, l2_bytes=512 * _KB, l3_bytes=8 * _MB, clock=3.2e9,
         fma_pipe_bytes=16, fma_latency=5.0, load_pipe_bytes=16),
    _row("znver2", _HASWELL, cores=8, l2_bytes=512 * _KB, l3_bytes=16 * _MB, clock=3.2e9,
         fma_pipe_bytes=32, fma_latency=5.0, load_pipe_bytes=32, winograd=_AVX2_WINOGRAD),
    _row("znver3", _HASWELL, cores=8, l2_bytes=512 * _KB, clock=3.4e9, fma_pipe_bytes=32,
         load_pipe_bytes=32, store_buffer=52, store_line=2.0, direct=_ZEN3_DIRECT, winograd=_ZEN3_WINOGRAD,
         shares=CacheShares(slabs=(0.15, 0.3), slab_rows=(0, 2))),
    # Operations of 512 bits go through pipes of 256 in two halves.
    _row("znver4", _ZEN4, cores=8, clock=3.7e9, fma_pipe_bytes=32, load_pipe_bytes=32, adds_apart=True,
         direct=DirectCosts(kept_gain=1.0), shares=CacheShares(slab_rows=(0, 2)),
         expected=Figures(l2=30.0, memory=8.0)),
    _row("znver5", (*_ZEN4, "avxvnni"), cores=8, l1_bytes=48 * _KB, clock=4.0e9, adds_apart=True,
         expected=Figures(l2=60.0, memory=11.0)),
    _arm("neoverse-n1", _ARM, cores=8, l1_bytes=64 * _KB, clock=2.6e9, fma_latency=2.0),
    _arm("neoverse-v1", _ARM_SVE, cores=8, l1_bytes=64 * _KB, clock=2.6e9, fma_pipes=4, fma_latency=2.0,
         load_pipes=3, expected=Figures(memory=10.0)),
    _arm("neoverse-v2", (*_ARM_SVE, "sve2"), cores=8, l1_bytes=64 * _KB, l2_bytes=2 * _MB, clock=2.8e9,
         fma_pipes=4, fma_latency=2.0, load_pipes=3, expected=Figures(memory=10.0)),
    # Its L2 belongs to four cores.
    _arm("cortex-a72", ("neon",), cores=4, l2_bytes=256 * _KB, l3_bytes=_MB, clock=1.5e9, fma_pipes=1,
         fma_latency=3.0, load_pipes=1),
    _arm("cortex-a76", _ARM, cores=4, l1_bytes=64 * _KB, l2_bytes=512 * _KB, l3_bytes=2 * _MB, clock=2.4e9,
         fma_latency=2.0),
)  # fmt: skip

_ALIKE: Mapping[str, tuple[str, ...]] = {
    "portable": ("generic",),
    "x86-64": ("x86-64-v2", "nehalem", "sandybridge"),
    "haswell": ("broadwell", "core-avx2"),
    "raptorlake": ("meteorlake",),
    "lunarlake": ("arrowlake", "arrowlake-s", "pantherlake"),
    "gracemont": ("sierraforest", "grandridge"),
    "skylake-avx512": ("skx",),
    "cascadelake": ("cooperlake",),
    "icelake-client": ("rocketlake",),
    "sapphirerapids": ("emeraldrapids",),
    "graniterapids": ("graniterapids-d",),
    "znver1": ("bdver4",),
}
"""Names whose figures are another row's."""

_ALIKE_BUT: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "cannonlake": ("icelake-client", (*_SKYLAKE_X, "avx512ifma", "avx512vbmi")),
    "knl": ("gracemont", _KNIGHTS), "knm": ("gracemont", _KNIGHTS),
}  # fmt: skip
"""The same, of other features.  The last two have a part of AVX-512 that the kernels cannot do with."""


def _table() -> dict[str, Target]:
    table = {row.name: row for row in _ROWS}
    table |= {name: table[row] for row, names in _ALIKE.items() for name in names}
    for name, (row, features) in _ALIKE_BUT.items():
        table[name] = replace(table[row], isa=largest_set(features), name=name, features=complete(features))
    return table


MACHINES: Mapping[str, Target] = _table()
"""Rows by the names of CPUs."""

GENERIC: Mapping[InstructionSet, Target] = {
    MACHINES[name].isa: MACHINES[name] for name in ("x86-64", "x86-64-v3", "x86-64-v4")
}
"""The rows of x86 for CPUs of which no more is known than their features."""
