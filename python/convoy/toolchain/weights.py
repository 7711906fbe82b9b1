"""Packed weights → an object that holds them.

It is not cached: writing 100 MB of weights takes a tenth of a second, hashing it to find out whether it is
there takes as long, and a cache of a few models' weights would push out all objects.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from convoy.target import Target
from convoy.text import c_name, c_string
from convoy.toolchain import elf
from convoy.toolchain.compiler import kernel_include_dirs
from convoy.toolchain.driver import find_compiler
from convoy.toolchain.made import run_to_make
from convoy.toolchain.temporary import new_file, unwritable

_FAR_BYTES = 1 << 30
_BLOCK = 16 << 10
"""Bytes that are kept as float16 or not: so many that stretches are few."""

_IN_FILE = """\
__asm__(
    ".pushsection {section}\\n.globl {name}\\n.hidden {name}\\n.type {name}, %object\\n.balign 64\\n"
    "{name}:\\n.incbin " {file} "\\n.balign 64\\n.size {name}, . - {name}\\n.popsection");
"""
_WIDENED = """\
#include "runtime/half.h"

extern const char {stored}[];
__attribute__((visibility("hidden"), aligned(64))) char {weights}[{bytes}];

static const cv_stretch stretches[] = {{
{stretches}
}};

/* Before the constructors that move weights into huge pages. */
__attribute__((constructor(101))) static void widen(void) {{
  cv_read_stretches({weights}, {stored}, stretches, {count});
}}
"""


def embed_weights(
    symbol: str, weights: bytes | memoryview, target: Target, *, output: Path | None = None
) -> Path:
    """An object that defines ``const char <symbol>_weights[]``, 64-aligned.

    Where much of it is float32 that float16 holds exactly, as the weights of a model in float16, that part
    is half as large in the file, and is widened when the library is loaded.

    Parameters
    ----------
    symbol : str
        The region's name in C.
    weights : bytes | memoryview
        Their bytes, any number.
    output : Path | None
        The object to write; None: a new file in this process's temporary folder.

    Returns
    -------
    Path
        The object's path.

    Raises
    ------
    ToolchainError
        If it cannot be written.
    """
    compiler = find_compiler()
    path = output or new_file(".o")
    binary = path.with_suffix(".bin")
    name = c_name(f"{symbol}_weights")
    # Past a gigabyte, the large section: placed after all else, it keeps code and data within the
    # 2 GB that their references to each other span.
    far = len(weights) > _FAR_BYTES and "x86_64" in compiler.identity
    section = '.lrodata.convoy,\\"al\\",@progbits' if far else '.rodata.convoy,\\"a\\",%progbits'
    stretches = [] if far else find_stretches(weights)
    widened = sum(bytes for bytes, half in stretches if half) > len(weights) // 4
    stored = c_name(f"{symbol}_stored") if widened else name
    source = _IN_FILE.format(section=section, name=stored, file=_quoted(binary))
    if widened:
        source += _WIDENED.format(
            stored=stored,
            weights=name,
            bytes=len(weights),
            stretches="\n".join(f"    {{{bytes}, {int(half)}}}," for bytes, half in stretches),
            count=len(stretches),
        )
    try:
        binary.write_bytes(narrow(weights, stretches) if widened else weights)
        run_to_make(
            [
                *compiler.command, *target.flags, "-std=gnu11", "-O2", "-fPIC",
                *(f"-I{folder}" for folder in kernel_include_dirs()), "-x", "c", "-c", "-", "-o", str(path),
            ],
            f"weights of {symbol}",
            path,
            elf.OBJECT,
            [name],
            text=source,
        )  # fmt: skip
    except OSError as problem:
        raise unwritable(path.parent, problem) from problem
    finally:
        binary.unlink(missing_ok=True)
    return path


def find_stretches(weights: bytes | memoryview) -> list[tuple[int, bool]]:
    """Neighbouring stretches: their bytes, and whether float16 holds all their float32 exactly."""
    blocks = [weights[at : at + _BLOCK] for at in range(0, len(weights), _BLOCK)]
    runs = groupby(blocks, key=_is_half)
    return [(sum(map(len, run)), half) for half, run in runs]


def _is_half(block: bytes | memoryview) -> bool:
    if len(block) % 4:
        return False
    values = np.frombuffer(block, np.float32)
    return all(map(_survives, (values[:16], values)))  # a few tell of nearly all that do not


def _survives(values: NDArray[np.float32]) -> bool:
    """Is it the same after float16, bit by bit?"""
    with np.errstate(over="ignore", invalid="ignore"):
        again = values.astype(np.float16).astype(np.float32)
    return bool((again.view(np.uint32) == values.view(np.uint32)).all())


def narrow(weights: bytes | memoryview, stretches: list[tuple[int, bool]]) -> bytes:
    """The bytes of the file: stretch after stretch, float16 where it is enough."""
    parts, at = [], 0
    for size, half in stretches:
        part = weights[at : at + size]
        parts.append(np.frombuffer(part, np.float32).astype(np.float16).tobytes() if half else bytes(part))
        at += size
    return b"".join(parts)


def _quoted(path: Path) -> str:
    """The path as the assembler's string, in a string of C."""
    return c_string(c_string(str(path)))
