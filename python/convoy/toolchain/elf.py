"""What a compiler wrote, looked at before it is kept: its format, its machine, the symbols it defines."""

from __future__ import annotations

import mmap
import stat
import struct
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

OBJECT, LIBRARY = 1, 3
"""ELF's numbers of a relocatable object and of a shared library."""

_KINDS = {OBJECT: "an object", 2: "a program", LIBRARY: "a shared library", 4: "a core file"}
_MACHINES = {3: "x86", 8: "MIPS", 20: "PowerPC", 21: "PowerPC64", 22: "S390", 40: "ARM", 62: "x86-64",
             183: "AArch64", 243: "RISC-V", 258: "LoongArch"}  # fmt: skip
_HEADER = struct.Struct("=16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("=IIQQQQIIQQ")
_SYMBOL = struct.Struct("=IBBHQQ")
_SYMBOLS, _NO_DATA = 2, 8
"""Types of sections: a table of symbols, and one that takes no room in the file."""
_UNDEFINED = 0


def find_fault(path: Path, kind: int, symbols: Collection[str] = ()) -> str | None:
    """What is wrong with a file a compiler or linker wrote; None: nothing.

    Parameters
    ----------
    kind : int
        ``OBJECT`` or ``LIBRARY``, for the machine this process runs on.
    symbols : Collection[str]
        An object must define them.

    Returns
    -------
    str | None
        ``expected X, got Y``.

    Raises
    ------
    OSError
        If the file is there and cannot be read.
    """
    expected = f"expected {_KINDS[kind]} for {_name(_own()[1])}"
    try:
        if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would be opened for good
            return f"{expected}, got something there that is no plain file"
        with path.open("rb") as file:
            size = file.seek(0, 2)
            if size == 0:
                return f"{expected}, got an empty file"
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found = _examine(data, kind)
                missing = set() if found or not symbols else set(symbols) - set(_defined(data))
    except FileNotFoundError:
        return f"{expected}, got no file"
    except (struct.error, IndexError, ValueError, OverflowError):
        return f"{expected}, got {size} bytes of a damaged one, or of one that ends too soon"
    if found:
        return f"{expected}, got {found}"
    return f"expected the symbol {min(missing)} in it, got none" if missing else None


def read_section(path: Path, name: str, most: int) -> bytes | None:
    """What stands in a section of an ELF file, of which nothing is run.

    Parameters
    ----------
    name : str
        Of several sections of this name it is the first.
    most : int
        Bytes; a longer section is not read.

    Returns
    -------
    bytes | None
        None where there is no such section, or the file is no whole ELF file of this machine's word size.

    Raises
    ------
    OSError
        If the file cannot be read.
    """
    if not stat.S_ISREG(path.stat().st_mode):  # a pipe would be opened for good
        return None
    with path.open("rb") as file:
        if file.seek(0, 2) < _HEADER.size:
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if data[:4] != b"\x7fELF" or data[4:6] != _own()[0]:
                return None
            try:
                sections = _sections(data)
                names = sections[_HEADER.unpack_from(data)[13]]
                for section in sections:
                    start = names[4] + section[0]
                    if data[start : start + len(name) + 1] == name.encode() + b"\0":
                        found = data[section[4] : section[4] + min(section[5], most + 1)]
                        return found if len(found) == section[5] <= most else None
            except (ValueError, IndexError, OverflowError, struct.error):
                return None
    return None


def _examine(data: mmap.mmap, kind: int) -> str:
    """What a file is instead; empty if it is what it should be."""
    if data[:4] != b"\x7fELF":
        return f"{len(data)} bytes of something else"
    ident, machine = _own()
    if data[4:6] != ident:
        return "one of another word size or byte order"
    header = _HEADER.unpack_from(data)
    if header[2] != machine:
        return f"one for {_name(header[2])}"
    if header[1] != kind:
        return _KINDS.get(header[1], f"an ELF file of type {header[1]}")
    for section in _sections(data):
        if section[1] != _NO_DATA and section[4] + section[5] > len(data):
            raise ValueError("a section ends behind the file")
    return ""


def _sections(data: mmap.mmap) -> list[tuple[int, ...]]:
    header = _HEADER.unpack_from(data)
    table, entry, count = header[6], header[11], header[12]
    if count == 0 and table:  # more than 65,279: the first entry has their number
        count = _SECTION.unpack_from(data, table)[5]
    if entry != _SECTION.size and count:
        raise ValueError("a table of something else")
    return [_SECTION.unpack_from(data, table + entry * i) for i in range(count)]


def _defined(data: mmap.mmap) -> Iterator[str]:
    """The names of symbols that are not undefined."""
    sections = _sections(data)
    for section in sections:
        if section[1] != _SYMBOLS:
            continue
        names = sections[section[6]]
        for offset in range(section[4], section[4] + section[5], _SYMBOL.size):
            symbol = _SYMBOL.unpack_from(data, offset)
            if symbol[3] != _UNDEFINED:
                start = names[4] + symbol[0]
                yield data[start : data.find(b"\0", start)].decode(errors="replace")


@cache
def _own() -> tuple[bytes, int]:
    """Word size with byte order, and machine, of the program that runs: what it can load."""
    with Path("/proc/self/exe").open("rb") as file:
        header = file.read(_HEADER.size)
    return header[4:6], _HEADER.unpack(header)[2]


def _name(machine: int) -> str:
    return _MACHINES.get(machine, f"machine {machine}")
