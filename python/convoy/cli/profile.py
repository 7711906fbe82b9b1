"""``convoy profile``: where the time of a run goes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from convoy.bench.profile import SECONDS, profile
from convoy.bench.study import model_file
from convoy.cli.console import expect_file, note, print_json, progress, show, write_file
from convoy.cli.options import (
    AccuracyOption,
    Disabled,
    Excluded,
    Html,
    NoMerge,
    PrecisionOption,
    Shapes,
    Threads,
    make_options,
    parse_shapes,
)
from convoy.options import Options
from convoy.report.pages.content import profile_content
from convoy.report.pages.page import make_page
from convoy.report.profile_text import describe_profile
from convoy.text import to_json

Model = Annotated[
    str,
    typer.Argument(metavar="MODEL.onnx|NAME", help="An ONNX file, or a network of the zoo by its name."),
]
Seconds = Annotated[float, typer.Option("--seconds", min=0, metavar="S", help="How long to run the model.")]
Json = Annotated[bool, typer.Option("--json", help="Print the profile as JSON, for programs.")]
TraceFile = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="OUT.json",
        help="Write one run in Chrome's trace format, for ui.perfetto.dev or chrome://tracing.",
    ),
]


def profile_model(
    model: Model,
    seconds: Seconds = SECONDS,
    threads: Threads = 0,
    shape: Shapes = None,
    as_json: Json = False,
    trace: TraceFile = None,
    disable: Disabled = None,
    exclude: Excluded = None,
    no_merge: NoMerge = False,
    accuracy: AccuracyOption = Options.accuracy,
    precision: PrecisionOption = "float32",
    html: Html = None,
) -> None:
    """Say where the time of a run goes, step by step.

    The model is compiled for this machine with its steps traced, and runs on seeded random inputs.
    Each step of a region and each kernel of TVM's has a line, with the names of the model's nodes: its
    time, the planner's estimate at the speed the machine had, GFLOP/s by the definition of its ops, its
    share of the roofline, the bytes it moves, and how evenly the threads shared it.  The last lines
    say how much of the time is accounted for, and what listening costs.

    A compiled library is not traced: give the model it was made of.

    Examples:

    \b
      convoy profile resnet50.onnx
      convoy profile resnet50 --threads 1 --trace resnet50.json --html resnet50.html
      convoy profile net.onnx --shape data=4x3x224x224 --json | jq '.parts[] | select(.kind == "kernel")'
    """
    options = make_options(
        threads=threads,
        disabled=disable,
        excluded=exclude,
        no_merge=no_merge,
        accuracy=accuracy,
        precision=precision,
    )
    shapes = parse_shapes(shape)
    expect_file(trace, "--trace", model)
    expect_file(html, "--html", model, trace)
    with progress(f"profiling {Path(model).name}") as tell, model_file(model, 0, tell, "profile") as path:
        found = profile(path, shapes=shapes, options=options, seconds=seconds, progress=tell)
        found = replace(found, model=Path(model).name)  # not that of the file a network of the zoo is in
    if as_json:
        print_json(found.as_dict())
    else:
        show(describe_profile(found))
    if trace is not None:
        write_file(trace, to_json(found.trace()), "--trace")
        note(f"trace: {trace}")
    if html is not None:
        write_file(html, make_page(profile_content(found)), "--html")
        note(f"page: {html}")
