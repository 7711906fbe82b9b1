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


ROOM = """
#define _GNU_SOURCE
#include <stdio.h>
static const char *root;
static FILE *open_under_root(const char *path, const char *mode) {
  char name[8192];
  snprintf(name, sizeof name, "%s%s", root, path);
  return fopen(name, mode);
}
#define fopen open_under_root
#include "runtime/weights.c"
int room(const char *folder, size_t bytes) { root = folder; return has_room(bytes); }
"""
PLENTY = {"proc/meminfo": "MemTotal: 9000 kB\nMemAvailable:    8000 kB\nBuffers: 1 kB\n"}


@pytest.fixture(scope="module")
def room_library():
    ffi = cffi.FFI()
    ffi.cdef("int room(const char *folder, size_t bytes);")
    units = [ROOM, compiler.runtime_sources()["environment.c"]]
    return ffi.dlopen(str(compiler.link_shared(compiler.compile_objects(units, target.host()))))


@pytest.mark.parametrize(
    ("files", "kilobytes"),
    [
        ({}, 4000),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 4000),
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/memory.max": f"{3000 << 10}\n",
                "sys/fs/cgroup/pod/memory.current": f"{1000 << 10}\n",
                "sys/fs/cgroup/pod/box/memory.max": "max\n",
            },
            1000,
        ),
        (
            {
                "proc/self/cgroup": "7:memory:/x\n4:cpu,cpuacct:/y\n",
                "sys/fs/cgroup/memory/x/memory.limit_in_bytes": f"{2000 << 10}\n",
                "sys/fs/cgroup/memory/x/memory.usage_in_bytes": f"{1800 << 10}\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
            },
            100,
        ),
    ],
)
def test_weights_move_only_where_as_much_again_stays_free(room_library, tmp_path, files, kilobytes):
    for name, text in {**PLENTY, **files}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert room_library.room(str(tmp_path).encode(), kilobytes << 10)
    assert not room_library.room(str(tmp_path).encode(), (kilobytes << 10) + 1)


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
