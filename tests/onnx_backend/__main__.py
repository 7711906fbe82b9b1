"""``scripts/node-tests``: ONNX's node tests through Convoy and plain TVM."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from onnx_backend.cases import load_cases
from onnx_backend.journal import Journal
from onnx_backend.run import TimeIsUp, run, summary, write_list


def show_progress(done: int, total: int) -> None:
    """A line that counts, in a terminal; elsewhere a line for each hundred."""
    if sys.stderr.isatty():
        print(f"\r{done} of {total}", end="", file=sys.stderr, flush=True)
    elif done % 100 == 0:
        print(f"{done} of {total}", file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/node-tests", description=__doc__)
    parser.add_argument("-k", metavar="TEXT", default="", help="only cases with TEXT in their name")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("-o", metavar="FILE", type=Path, default=Path("results/onnx_node_tests.txt"),
                        help="where the list goes (default: %(default)s)")  # fmt: skip
    parser.add_argument("--both", action="store_true", help="run plain TVM on every case, not only on "
                        "those Convoy fails")  # fmt: skip
    parser.add_argument("--give-back", action="store_true", help="leave small regions to TVM, as by "
                        "default outside of these tests")  # fmt: skip
    parser.add_argument("--resume", action="store_true", help="go on with the run that was stopped")
    parser.add_argument("--minutes", metavar="M", type=float, default=math.inf,
                        help="stop after M minutes, for --resume (default: never)")  # fmt: skip
    wanted = parser.parse_args()
    cases = [case for case in load_cases() if wanted.k in case.name]
    if not cases:
        parser.error(f"-k: expected part of a case's name, got {wanted.k!r}")
    small = not wanted.give_back
    try:
        results = run(
            cases,
            processes=wanted.j,
            small=small,
            ask_tvm=wanted.both,
            journal=Journal(wanted.o.with_suffix(".jsonl"), small=small, resume=wanted.resume),
            seconds=60 * wanted.minutes,
            progress=show_progress,
        )
    except TimeIsUp as stop:
        print(f"\nstopped after {wanted.minutes:g} minutes: {stop}; go on with --resume")
        return 2
    write_list(results, wanted.o)
    print(f"\n{summary(results)}; the list is in {wanted.o}")
    lost = [r for r in results if r.lost]
    for result in lost:
        print(f"plain TVM passes, Convoy fails: {result.name}: {result.convoy.reason}")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
