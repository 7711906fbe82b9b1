"""The header of the vector intrinsics, parsed once for all units.

GCC 12 takes 0.26 s for ``immintrin.h``, more than for a small region itself; read back precompiled,
it takes 0.03 s (2026-11-21).  Only with GCC: it passes over a precompiled header that does not fit,
where Clang refuses the unit.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from convoy.toolchain.cache import IN_USE_SECONDS, Cache
from convoy.toolchain.driver import Compiler, run

_HEADER = "#include <immintrin.h>\n"
_PRECOMPILED = b"gpch"
"""How GCC's precompiled headers begin."""
_USES_VECTORS = re.compile(r'^#include "(kernels|simd)/', re.MULTILINE)


def intrinsics_flags(source: str, compiler: Compiler, flags: Sequence[str], entries: Cache) -> list[str]:
    """Flags by which a unit starts with the intrinsics, parsed already; none if it needs no vectors.

    Parameters
    ----------
    flags : Sequence[str]
        Those the unit is compiled with; a precompiled header fits no others.
    entries : Cache
        Cache that holds the header, 24 MB for each instruction set.

    Raises
    ------
    OSError, ToolchainError
        If it cannot be written.
    """
    vectors = any(flag.startswith("-mavx") for flag in flags) and _USES_VECTORS.search(source)
    if not vectors or not compiler.is_gcc:
        return []
    # asked for anew now and then: the cache keeps what was asked for lately
    period = int(time.monotonic() / (IN_USE_SECONDS / 2))
    header = _precompile(compiler, tuple(flags), entries, period)
    return ["-include", str(header)] if header.is_file() else []


@lru_cache(maxsize=8)
def _precompile(compiler: Compiler, flags: tuple[str, ...], entries: Cache, period: int) -> Path:
    """The header, with its precompiled form beside it, where GCC looks for it."""
    del period
    basis = "\0".join([compiler.identity, *compiler.command, *flags, _HEADER])
    key = hashlib.sha256(basis.encode()).hexdigest()

    def write(path: Path) -> None:
        path.write_text(_HEADER, "utf-8")

    header = entries.fetch(key, ".h", write)

    def precompile(path: Path) -> None:
        failed = run([*compiler.command, *flags, "-x", "c-header", str(header), "-o", str(path)], "")
        if failed or not path.is_file() or not path.read_bytes().startswith(_PRECOMPILED):
            path.write_bytes(b"")  # this GCC cannot; it passes over an empty file

    entries.fetch(key, ".h.gch", precompile)
    return header
