"""Counting the cores of machines we do not have: the kernel's files are read from a folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import cffi
import pytest

from convoy import target
from convoy.toolchain import compiler

SOURCE = """
#include "runtime/cores.h"
#include <stdio.h>

const char *root;

static FILE *open_under_root(const char *path, const char *mode) {
  char name[8192];
  snprintf(name, sizeof name, "%s%s", root, path);
  return fopen(name, mode);
}
#define fopen open_under_root
#include "runtime/cores.c"

int count_cores(const char *folder, int cpus) {
  cpu_set_t set;
  int16_t core_of[CPU_SETSIZE];
  root = folder;
  CPU_ZERO(&set);
  for (int cpu = 0; cpu < cpus; ++cpu) CPU_SET(cpu, &set);
  cv_find_cores(&set, core_of);
  return cv_count_cores(core_of);
}
"""


@pytest.fixture(scope="module")
def library():
    ffi = cffi.FFI()
    ffi.cdef("int count_cores(const char *folder, int cpus);")
    return ffi.dlopen(str(compiler.link_shared([compiler.compile_object(SOURCE, target.host())])))


@pytest.fixture
def count(library, tmp_path: Path) -> Callable[..., int]:
    def count_on(files: dict[str, str], cpus: int) -> int:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return library.count_cores(str(tmp_path).encode(), cpus)

    return count_on


def topology(siblings: list[str], name: str = "core_cpus_list") -> dict[str, str]:
    return {f"sys/devices/system/cpu/cpu{cpu}/topology/{name}": f"{s}\n" for cpu, s in enumerate(siblings)}


@pytest.mark.parametrize(
    ("siblings", "cpus", "expected"),
    [
        (["0", "1"], 2, 2),
        (["0,4", "1,5", "2,6", "3,7"] * 2, 8, 4),
        (["0-1", "0-1", "2-3", "2-3"], 4, 2),
        (["0,4", "1,5", "2,6", "3,7"] * 2, 5, 4),  # the process has one whole core and three halves
        ([], 3, 3),
        (["nonsense", "1"], 2, 2),
    ],
)
@pytest.mark.parametrize("name", ["core_cpus_list", "thread_siblings_list"])
def test_hardware_threads_of_a_core_count_once(count, siblings, cpus, expected, name):
    assert count(topology(siblings, name), cpus) == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n"}, 8),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "250000 100000\n"}, 2),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "50000 100000\n"}, 1),
        ({"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 8),
        (
            {
                "proc/self/cgroup": "0::/pod/box\n",
                "sys/fs/cgroup/pod/cpu.max": "300000 100000\n",
                "sys/fs/cgroup/pod/box/cpu.max": "max 100000\n",
            },
            3,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/x\n4:cpu,cpuacct:/x\n0::/\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_quota_us": "400000\n",
                "sys/fs/cgroup/cpu/x/cpu.cfs_period_us": "100000\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
            },
            4,
        ),
        ({"proc/self/cgroup": "garbage\n\n:\n::\n"}, 8),
    ],
)
def test_quota_of_the_control_groups_limits_the_threads(count, files, expected):
    assert count(files, 8) == expected
