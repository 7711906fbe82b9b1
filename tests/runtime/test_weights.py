"""Weights move into huge pages when a library is loaded."""

from __future__ import annotations

import re
from pathlib import Path

import cffi
import pytest

from convoy import target
from convoy.deploy.classic import RUNTIME_FUNCTIONS
from convoy.toolchain import compiler
from convoy.toolchain.compiler import kernel_include_dirs

HUGE_PAGE = 2 << 20
FLOATS = 3 * HUGE_PAGE // 4
"""Two whole huge pages at least, wherever they begin."""

SOURCE = f"""
#include "convoy/runtime.h"
const float table[{FLOATS}] = {{[0] = 1, [{FLOATS // 2}] = 2, [{FLOATS - 1}] = 3}};
void place(size_t bytes) {{ convoy_place_weights(table, bytes); }}
"""


def huge_pages() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[never]" not in setting.read_text()


def backing(address: int) -> str:
    """The permissions and the file, if any, of the mapping that holds ``address``."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, permissions, *rest = line.split(maxsplit=5)
        begin, end = (int(part, 16) for part in span.split("-"))
        if begin <= address < end:
            return f"{permissions} {rest[3] if len(rest) == 4 else ''}".strip()
    raise AssertionError(f"{address:#x} is not mapped")


class Table:
    """A library with a constant table, loaded."""

    def __init__(self) -> None:
        objects = compiler.compile_objects([SOURCE, *compiler.runtime_sources().values()], target.host())
        self.ffi = cffi.FFI()
        self.ffi.cdef(f"extern const float table[{FLOATS}]; void place(size_t bytes);")
        self.library = self.ffi.dlopen(str(compiler.link_shared(objects)))
        address = int(self.ffi.cast("uintptr_t", self.library.table))
        self.inside = -(-address // HUGE_PAGE) * HUGE_PAGE
        """Where its first whole huge page begins."""


def test_whole_huge_pages_leave_the_file_and_keep_their_values() -> None:
    loaded = Table()
    table = loaded.library.table
    from_file = backing(loaded.inside)

    loaded.library.place(HUGE_PAGE // 2)  # fills no huge page
    assert backing(loaded.inside) == from_file
    loaded.library.place(FLOATS * 4)
    assert backing(loaded.inside) == ("r--p" if huge_pages() else from_file)
    assert [table[i] for i in (0, 1, FLOATS // 2, FLOATS - 1)] == [1, 0, 2, 3]
    assert sum(loaded.ffi.unpack(table, FLOATS)) == 6


def test_they_stay_in_the_file_where_the_user_wants_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOY_HUGE_PAGES", "0")
    loaded = Table()
    from_file = backing(loaded.inside)
    loaded.library.place(FLOATS * 4)
    assert backing(loaded.inside) == from_file


def test_classic_tvm_shares_every_function_of_the_runtime() -> None:
    # one that is left out is missing when a library with large weights is loaded
    headers = [kernel_include_dirs()[0] / "convoy" / name for name in ("runtime.h", "classic_entry.h")]
    declared = {name for path in headers for name in re.findall(r"\b(convoy_\w+)\(", path.read_text())}
    assert set(RUNTIME_FUNCTIONS) == declared
