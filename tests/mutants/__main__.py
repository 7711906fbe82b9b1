"""``scripts/mutants``: damaged models, each of which gets one clear line or a right answer."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from mutants.run import SECONDS, run_mutants, summary


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("--count", metavar="N", type=int, default=1000, help="mutants (default: 1000)")
    parser.add_argument("--seed", metavar="S", type=int, default=0,
                        help="of the first one; the next have the next (default: 0)")  # fmt: skip
    parser.add_argument("-j", metavar="N", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--seconds", metavar="S", type=float, default=SECONDS,
                        help="time limit of one (default: %(default)g)")  # fmt: skip
    parser.add_argument("-o", metavar="FOLDER", type=Path, default=Path("results/mutants"),
                        help="folder for the list and findings (default: %(default)s)")  # fmt: skip
    wanted = parser.parse_args()
    wanted.o.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    verdicts = []
    seeds = range(wanted.seed, wanted.seed + wanted.count)
    with (wanted.o / "list.txt").open("w") as file:
        for verdict in run_mutants(seeds, processes=wanted.j, seconds=wanted.seconds, keep=wanted.o):
            verdicts.append(verdict)
            line = f"{verdict.seed}: {verdict.kind}: {verdict.what!r}: {verdict.text!r}"
            print(line, file=file, flush=True)
            if not verdict.good:
                print(line, flush=True)
    print(f"{summary(verdicts)}; {time.monotonic() - start:.0f} s; the list is in {wanted.o}/list.txt")
    return 0 if all(verdict.good for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
