"""``scripts/relay-networks``: whole networks through the Relay door, against TVM's own build."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
from relay_networks.build import build_plain, build_with_convoy, open_library
from relay_networks.networks import names
from tvm.contrib import graph_executor

from convoy.bench.accuracy import BOUND

LEAST_SHARE = 0.99
"""Share of a network's FLOPs that Convoy has to take."""
PAUSE = 0.2
"""Seconds between two turns: TVM's idle threads watch for work that long."""


def check(chosen: list[str], folder: Path) -> Iterator[str]:
    """Lines of a table: the answer against TVM's at opt_level 0."""
    yield "| network | FLOPs offloaded | regions | ops left | largest error / largest output |"
    yield "| --- | --: | --: | --: | --: |"
    for name in chosen:
        with_convoy, plain = files(folder, name, "convoy", "opt-0")
        offload = build_with_convoy(name, with_convoy)
        build_plain(name, plain, 0)
        got, want = (run(open_library(file)) for file in (with_convoy, plain))
        error = float(np.abs(got - want).max() / np.abs(want).max())
        wrong = "" if error <= BOUND and offload.flops_share >= LEAST_SHARE else " **wrong**"
        yield (
            f"| {name} | {100 * offload.flops_share:.2f} % | {offload.regions} | {offload.left} "
            f"| {error:.1e}{wrong} |"
        )


def measure(chosen: list[str], folder: Path, rounds: int) -> Iterator[str]:
    """Lines of a table: the time against TVM's at opt_level 3, in turns."""
    yield "| network | Convoy, ms | TVM's opt_level 3, ms | TVM / Convoy, median of the rounds' ratios |"
    yield "| --- | --: | --: | --: |"
    for name in chosen:
        with_convoy, plain = files(folder, name, "convoy", "opt-3")
        if not with_convoy.is_file():
            build_with_convoy(name, with_convoy)
        if not plain.is_file():
            build_plain(name, plain, 3)
        engines = [open_library(file) for file in (with_convoy, plain)]
        times = [[turn(engine) for engine in engines] for _ in range(rounds)]
        ours, theirs = (1e3 * median(column) for column in zip(*times, strict=True))
        ratio = median(theirs / ours for ours, theirs in times)
        yield f"| {name} | {ours:.1f} | {theirs:.1f} | {ratio:.2f} |"


def run(engine: graph_executor.GraphModule) -> np.ndarray:
    engine.run()
    return engine.get_output(0).numpy()


def turn(engine: graph_executor.GraphModule) -> float:
    """Seconds of the middle one of three runs, after one to warm up."""
    time.sleep(PAUSE)
    engine.run()
    times = []
    for _ in range(3):
        start = time.perf_counter()
        engine.run()
        times.append(time.perf_counter() - start)
    return median(times)


def files(folder: Path, name: str, *builds: str) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return [folder / f"{name.replace('/', '-')}.{build}.so" for build in builds]


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/relay-networks", description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(names())}; all")
    parser.add_argument("--time", type=int, default=0, metavar="ROUNDS",
                        help="time Convoy and TVM's opt_level 3, in turns, with each one's own default of "
                        "threads; TVM_NUM_THREADS sets both")  # fmt: skip
    parser.add_argument("--folder", type=Path, default=Path("results/relay"),
                        help="of the libraries; --time takes those it finds (default: %(default)s)",
                        )  # fmt: skip
    wanted = parser.parse_args()
    chosen = wanted.networks or names()
    for name in chosen:
        if name not in names():
            parser.error(f"expected one of {', '.join(names())}, got {name}")
    lines = measure(chosen, wanted.folder, wanted.time) if wanted.time else check(chosen, wanted.folder)
    failed = False
    for line in lines:
        print(line, flush=True)
        failed |= "**wrong**" in line
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
