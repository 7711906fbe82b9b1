"""``scripts/faults``: kills, races, full disks, limits and load, a line of figures for each."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from faults.disks import fill_disks, limit_files, write_protect
from faults.kills import kill_compilations, race_compilations
from faults.limits import change_cores, limit_memory, limit_processes
from faults.load import call_from_threads, fork_while_running, infer_often, load_often
from line import Line

Test = Callable[[Path, bool], Line]

TESTS: dict[str, Test] = {
    "kills": lambda folder, quick: kill_compilations(folder, 5 if quick else 200),
    "races": lambda folder, quick: race_compilations(folder, 6 if quick else 100),
    "disks": lambda folder, quick: fill_disks(folder, (4, 256, 65536)) if quick else fill_disks(folder),
    "files": lambda folder, quick: limit_files(folder, (4, 256, 65536)) if quick else limit_files(folder),
    "read-only": lambda folder, _: write_protect(folder),
    "memory": lambda folder, quick: limit_memory(folder, 6 if quick else 24),
    "processes": lambda folder, _: limit_processes(folder),
    "callers": lambda folder, quick: call_from_threads(folder, 2 if quick else 600),
    "inferences": lambda folder, quick: infer_often(folder, 2000 if quick else 100_000),
    "loads": lambda folder, quick: load_often(folder, 20 if quick else 500),
    "forks": lambda folder, quick: fork_while_running(folder, 5 if quick else 100),
    "cores": lambda folder, quick: change_cores(folder, 1 if quick else 30),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__)
    parser.add_argument("tests", nargs="*", choices=[[], *TESTS], metavar="TEST",
                        help=f"of {', '.join(TESTS)}; default: all")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="a little of each: a minute or two")
    wanted = parser.parse_args()
    # imported before the first fork, used in children only
    import convoy.relax.compile  # noqa: F401

    failed = 0
    for name in wanted.tests or TESTS:
        with tempfile.TemporaryDirectory(prefix="convoy-faults-") as folder:
            line = TESTS[name](Path(folder), wanted.quick)
        print(line, flush=True)
        failed += not line.good
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
