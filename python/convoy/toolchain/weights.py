"""Packed weights → an object that holds them.

It is not cached: writing 100 MB of weights takes a tenth of a second, hashing it to find out whether it is
there takes as long, and a cache of a few models' weights would push out all objects.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Literal

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
"""Bytes that are kept in half precision or not: so many that stretches are few."""

Storage = Literal["CV_AS_IN_MEMORY", "CV_AS_FLOAT16", "CV_AS_BFLOAT16"]
"""How weights lie in the file."""
AS_IN_MEMORY: Storage = "CV_AS_IN_MEMORY"
NARROW: tuple[Storage, ...] = ("CV_AS_FLOAT16", "CV_AS_BFLOAT16")

_IN_FILE = """\
    .pushsection {section}
    .globl {name}
    .hidden {name}
    .type {name}, %object
    .balign 64
{name}:
    .incbin {file}
    .balign 64
    .size {name}, . - {name}
    .popsection
"""
_NO_CODE = '    .section .note.GNU-stack,"",%progbits\n'
"""At the end of what no compiler wrote."""
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

    Where much of it is float32 that float16 or bfloat16 holds exactly, as the weights of a model in these
    types, that part is half as large in the file, and is widened when the library is loaded.

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
    section = '.lrodata.convoy,"al",@progbits' if far else '.rodata.convoy,"a",%progbits'
    stretches = [] if far else find_stretches(weights)
    widened = sum(size for size, stored in stretches if stored != AS_IN_MEMORY) > len(weights) // 4
    stored = c_name(f"{symbol}_stored") if widened else name
    source = _IN_FILE.format(section=section, name=stored, file=c_string(str(binary)))
    if widened:
        source = f"__asm__({c_string(source)});\n" + _WIDENED.format(
            stored=stored,
            weights=name,
            bytes=len(weights),
            stretches="\n".join(f"    {{{size}, {stored}}}," for size, stored in stretches),
            count=len(stretches),
        )
    else:  # the assembler alone takes a third of the time
        source += _NO_CODE
    language = ("-x", "c") if widened else ("-x", "assembler")
    try:
        binary.write_bytes(narrow(weights, stretches) if widened else weights)
        run_to_make(
            [
                *compiler.command, *compiler.known(target.flags), "-std=gnu11", "-O2", "-fPIC",
                *(f"-I{folder}" for folder in kernel_include_dirs()), *language, "-c", "-", "-o", str(path),
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


def find_stretches(weights: bytes | memoryview) -> list[tuple[int, Storage]]:
    """Neighbouring stretches: their bytes, and in which type the file holds all their float32 exactly."""
    blocks = [weights[at : at + _BLOCK] for at in range(0, len(weights), _BLOCK)]
    runs = groupby(blocks, key=_narrowest)
    return [(sum(map(len, run)), stored) for stored, run in runs]


def _narrowest(block: bytes | memoryview) -> Storage:
    if len(block) % 4:
        return AS_IN_MEMORY
    values = np.frombuffer(block, np.float32)
    for stored in NARROW:
        if all(_survives(some, stored) for some in (values[:16], values)):  # a few tell of nearly all
            return stored
    return AS_IN_MEMORY


def _survives(values: NDArray[np.float32], stored: Storage) -> bool:
    """Is it the same after being stored, bit by bit?"""
    bits = values.view(np.uint32)
    if stored == "CV_AS_BFLOAT16":
        return not (bits & np.uint32(0xFFFF)).any()
    with np.errstate(over="ignore", invalid="ignore"):
        return bool((values.astype(np.float16).astype(np.float32).view(np.uint32) == bits).all())


def narrow(weights: bytes | memoryview, stretches: list[tuple[int, Storage]]) -> bytes:
    """The bytes of the file: stretch after stretch, in half precision where it is enough."""
    parts, at = [], 0
    for size, stored in stretches:
        part = weights[at : at + size]
        if stored == "CV_AS_FLOAT16":
            part = np.frombuffer(part, np.float32).astype(np.float16).tobytes()
        elif stored == "CV_AS_BFLOAT16":
            part = (np.frombuffer(part, np.uint32) >> np.uint32(16)).astype(np.uint16).tobytes()
        parts.append(bytes(part))
        at += size
    return b"".join(parts)
