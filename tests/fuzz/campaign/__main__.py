"""``scripts/fuzz``: random networks through both doors, against ONNX Runtime without optimisations."""

from __future__ import annotations

import argparse
import math
import os
import sys
from pathlib import Path

from fuzz.campaign.crew import doors_there
from fuzz.campaign.replay import replay
from fuzz.campaign.run import Campaign


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--minutes", metavar="M", type=float, default=math.inf,
                        help="stop after M minutes")  # fmt: skip
    parser.add_argument(
        "--networks", metavar="N", type=float, default=math.inf, help="stop after N of them"
    )
    parser.add_argument("--seed", metavar="S", type=int, default=0, help="which networks (default: 0)")
    parser.add_argument("--door", choices=("both", "relax", "relay"), default="both")
    parser.add_argument("--quantised", action="store_true", help="quantised networks only")
    parser.add_argument("--open-sides", action="store_true", help="open heights, widths, lengths only")
    parser.add_argument("--precision", choices=("float32", "bf16"), default="float32",
                        help="what the Relax door computes in (default: float32)")  # fmt: skip
    parser.add_argument("-j", metavar="N", type=int, default=1, help="bundles at a time (default: 1)")
    parser.add_argument("--folder", metavar="DIR", type=Path, default=Path("results/fuzz"),
                        help="where failures and the summary go (default: %(default)s)")  # fmt: skip
    parser.add_argument("--replay", metavar="FILE|S:i", help="one network again: a kept file, or its seed")
    wanted = parser.parse_args()
    there = doors_there()
    if wanted.precision != "float32":
        wanted.door = "relax"
    doors = there if wanted.door == "both" else (wanted.door,)
    if wanted.door == "both" and len(there) < 2:
        print(
            f"fuzz: only the {there[0]} door: no .venv-relay here (scripts/setup --relay)", file=sys.stderr
        )
    always = (*["quantised"] * wanted.quantised, *["sides"] * wanted.open_sides)
    if wanted.replay:
        return replay(wanted.replay, doors, always)
    if wanted.minutes == wanted.networks == math.inf:
        parser.error("expected --minutes or --networks, got neither")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    campaign = Campaign(
        wanted.seed,
        wanted.folder,
        doors,
        lambda line: print(line, file=sys.stderr, flush=True),
        always=always,
        precision=wanted.precision,
    )
    campaign.run(seconds=60 * wanted.minutes, networks=wanted.networks, processes=wanted.j)
    path = campaign.write_summary()
    print(f"{campaign.progress()}, {campaign.tally.rounding} of rounding; {path}")
    for failure in campaign.tally.ours:
        print(f"{failure.seed} {failure.kind}: {failure.reason}; scripts/fuzz --replay {failure.named}")
    return 1 if campaign.tally.ours else 0


if __name__ == "__main__":
    sys.exit(main())
