"""``convoy bench``: time a model against other engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.table import Table

from convoy.bench.accuracy import BOUND
from convoy.bench.engines import ENGINES
from convoy.bench.measure import Timing, measure
from convoy.cli.console import progress, stderr, stdout
from convoy.cli.options import Model, Shapes, parse_shapes

PEERS = tuple(name for name in ENGINES if name != "convoy")

Against = Annotated[
    str,
    typer.Option(
        "--against",
        metavar="NAMES",
        help=f"Engines to compare with, separated by commas: {', '.join(PEERS)}.",
    ),
]
Threads = Annotated[
    int,
    typer.Option("--threads", min=0, metavar="N", help="Threads of every engine; 0: the physical cores."),
]
Rounds = Annotated[
    int,
    typer.Option("--rounds", min=1, metavar="N", help="Rounds; in each, every engine runs once, alone."),
]


def bench_model(
    model: Model,
    against: Against = "onnxruntime",
    threads: Threads = 0,
    rounds: Rounds = 10,
    shape: Shapes = None,
) -> None:
    """Time a model against other engines, in interleaved rounds.

    Each engine lives in its own process with the same threads; while one is timed the others are
    stopped.  Outputs are verified against ONNX Runtime without optimisations, inputs are seeded
    random.  Only the ratio means something on a shared machine: it is the median over rounds of the
    engine's time over Convoy's in the same round.  Engines slower than a second take part in two
    rounds only.

    Examples:

    \b
      convoy bench resnet50.onnx --against onnxruntime,tvm
      convoy bench net.onnx --threads 1 --rounds 30
    """
    shapes = parse_shapes(shape)
    others = [name.strip() for name in against.split(",") if name.strip() and name.strip() != "convoy"]
    with progress(f"timing {model.name}") as show:
        timings = measure(
            model,
            ["convoy", *others],
            threads=threads,
            rounds=rounds,
            shapes=shapes,
            progress=show,
        )
    stdout.print(timing_table(timings))
    if wrong := [t for t in timings if not t.error <= BOUND]:
        names = ", ".join(t.engine for t in wrong)
        stderr.print(f"error: wrong outputs (past {BOUND:g}): {names}", style="red")
        raise typer.Exit(1)


def timing_table(timings: Sequence[Timing]) -> Table:
    """One row per engine."""
    table = Table("engine", "median ms", "fastest ms", "time / Convoy's", "largest error", "rounds")
    for t in timings:
        table.add_row(
            t.engine,
            format_ms(t.milliseconds),
            format_ms(t.fastest),
            f"{t.ratio:.2f}",
            f"{t.error:.1e}",
            str(t.rounds),
        )
    return table


def format_ms(milliseconds: float) -> str:
    """Three or more digits: 0.0123, 4.56, 78.9, 1234."""
    return f"{milliseconds:.3g}" if milliseconds < 100 else f"{milliseconds:.0f}"
