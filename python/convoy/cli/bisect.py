"""``convoy bisect``: the smallest network within one that fails."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.bench.accuracy import BOUND
from convoy.bench.bisect import bisect
from convoy.bench.inputs import read_model
from convoy.cli.check import Bound, Seed
from convoy.cli.console import expect_file, print_error, progress, say, write_file
from convoy.cli.options import (
    AccuracyOption,
    Model,
    PrecisionOption,
    Shapes,
    Threads,
    make_options,
    parse_shapes,
)
from convoy.options import Options
from convoy.report.decision import count_of
from convoy.text import line

Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="SMALL.onnx", help="Where it is written.  Default: MODEL.small.onnx."
    ),
]
Minutes = Annotated[
    float,
    typer.Option("--minutes", min=0, metavar="M", help="After which the smallest part so far is written."),
]


def bisect_model(
    model: Model,
    output: Output = None,
    bound: Bound = BOUND,
    seed: Seed = 0,
    threads: Threads = 0,
    accuracy: AccuracyOption = Options.accuracy,
    precision: PrecisionOption = "float32",
    shape: Shapes = None,
    minutes: Minutes = 10,
) -> None:
    """Reduce a model that fails to the fewest nodes, and write it.

    A model fails if Convoy cannot compile or run it, or answers otherwise than ONNX Runtime on seeded
    random inputs; what passes is as in convoy check.  Parts of it are tried for as long as one fails in
    the same way.  The exit code is 1 if the model does not fail.

    Examples:

    \b
      convoy bisect net.onnx
      convoy bisect net.onnx -o small.onnx --bound 1e-5 --seed 7
    """
    small = output or model.parent / f"{model.stem}.small.onnx"
    expect_file(small, "-o", model)
    with progress(f"bisecting {model.name}") as tell:
        found = bisect(
            read_model(model),
            shapes=parse_shapes(shape),
            seed=seed,
            bound=bound,
            options=make_options(threads=threads, accuracy=accuracy, precision=precision),
            seconds=60 * minutes,
            progress=tell,
        )
    if found is None:
        print_error(line(f"bisect: {model}: expected a model that fails, got one that agrees"))
        raise typer.Exit(1)
    write_file(small, found.model.SerializeToString(), "-o")
    nodes = found.model.graph.node
    say(line(f"{small}: {count_of(len(nodes), 'node')}, after {found.tried} networks were tried"))
    if not found.ended:
        say(f"time was up after --minutes {minutes:g}: a smaller part may fail, too")
    for node in nodes:
        say(line(f"  {node.op_type} {node.name or ', '.join(node.output)}"))
    for region in found.report.regions:
        for number, step in enumerate(region.steps):
            say(line(f"  kernel: {step}, step {number} of {region.symbol}"))
    say(line(f"it fails: {found.failure.text}"))
    if found.failure.verdict is not None:
        say(found.failure.verdict.text(bound))
