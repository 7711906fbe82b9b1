"""``scripts/sanitize``: C tests, networks and random graphs under the compiler's sanitizers."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

from convoy.graph.least import settle_least
from convoy.kernels import planner
from convoy.target import Target, host
from fuzz.graphs import generate
from kernels.test_open_sizes import GRAPHS, moved, winograd
from line import Line
from sanitize.build import SANITIZERS
from sanitize.kernels import build_c_tests
from sanitize.networks import QUICK, SIZES, lower_network
from sanitize.regions import sanitize_regions

BATCH = 10
"""Random graphs in one program."""


def list_programs(
    sanitizer: str, parts: list[str], folder: Path, *, quick: bool, graphs: int
) -> Iterator[Callable[[], Line]]:
    """What makes and runs each program."""
    isas = (
        ["portable"]
        if host().isa == "portable"
        else [host().isa, "avx2" if host().isa == "avx512" else "portable"]
    )
    if "c" in parts:
        # a kernel's test is one thread: the thread sanitizer sees nothing in it
        kernels = sanitizer == "address"
        yield from build_c_tests(
            folder / f"c-{sanitizer}", sanitizer, isas[: 1 if quick else 2], kernels=kernels, slow=not quick
        )
    if "networks" in parts:
        for name in QUICK if quick else SIZES:
            place, target = folder / f"{name}-{sanitizer}", Target(isas[0])
            test, regions = f"{sanitizer}: {name}", lower_network(name)
            yield partial(sanitize_regions, test, regions, place, sanitizer, target)
        if not quick:
            opened = [settle_least(make()) for make in (*GRAPHS, moved, winograd)]
            place, target = folder / f"open-{sanitizer}", Target(isas[0])
            yield partial(sanitize_regions, f"{sanitizer}: open sizes", opened, place, sanitizer, target)
    if "fuzz" in parts:
        for first in range(0, graphs, BATCH):
            isa = isas[first // BATCH % len(isas)]
            drawn = [generate(seed) for seed in range(first, min(first + BATCH, graphs))]
            place = folder / f"fuzz-{first}-{sanitizer}"
            test = f"{sanitizer}: random graphs from {first}"
            yield partial(sanitize_regions, test, drawn, place, sanitizer, Target(isa), seed=first)


def run(programs: Iterable[Callable[[], Line]]) -> Iterator[Line]:
    """The line of each program, in their order; two run at a time."""
    waiting: deque[Future[Line]] = deque()
    with ThreadPoolExecutor(2) as pool:
        for program in programs:
            waiting.append(pool.submit(program))
            if len(waiting) > 2:
                yield waiting.popleft().result()
        for started in waiting:
            yield started.result()


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/sanitize", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the slice that CI runs: some minutes")
    parser.add_argument("--only", choices=SANITIZERS, help="one sanitizer; default: each in turn")
    parser.add_argument("--part", choices=("c", "networks", "fuzz"), action="append",
                        help="C tests, networks or random graphs; several: one each")  # fmt: skip
    parser.add_argument("--graphs", metavar="N", type=int, default=0,
                        help="random graphs (default: 60, with --quick 6)")  # fmt: skip
    wanted = parser.parse_args()
    # several threads share even regions that are too small for a team
    planner.images_worth_a_team = lambda *_: 0
    planner.work_worth_a_team = lambda *_: 0.0
    graphs = wanted.graphs or (6 if wanted.quick else 60)
    parts = wanted.part or ["c", "networks", "fuzz"]
    start, failed, done = time.monotonic(), 0, 0
    with tempfile.TemporaryDirectory(prefix="convoy-sanitize-") as folder:
        for sanitizer in [wanted.only] if wanted.only else SANITIZERS:
            programs = list_programs(sanitizer, parts, Path(folder), quick=wanted.quick, graphs=graphs)
            for line in run(programs):
                print(line, flush=True)
                failed, done = failed + (not line.good), done + 1
    print(f"sanitize: {done} programs, {failed} failed; {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
