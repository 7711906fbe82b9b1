"""``convoy explain``: every decision of a compilation, in words or as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.console import expect_file, note, print_json, progress, show, write_file
from convoy.cli.options import (
    L2,
    AccuracyOption,
    Cores,
    Disabled,
    Excluded,
    Html,
    Model,
    NoMerge,
    PrecisionOption,
    Shapes,
    Target,
    Threads,
    Tune,
    make_options,
    parse_shapes,
)
from convoy.options import Options
from convoy.report.decision import Report
from convoy.report.fused import make_fused_model
from convoy.report.pages.content import explain_content
from convoy.report.pages.page import make_page
from convoy.report.text import describe_report

Json = Annotated[bool, typer.Option("--json", help="Print the decisions as JSON, for programs.")]
Fused = Annotated[
    Path | None,
    typer.Option(
        "--onnx",
        metavar="OUT.onnx",
        help="Write the fused network as ONNX, a node for each kernel, for Netron and other viewers.",
    ),
]
Source = Annotated[bool, typer.Option("--source", help="Print the generated C as well.")]


def explain_model(
    model: Model,
    target: Target = None,
    threads: Threads = 0,
    shape: Shapes = None,
    as_json: Json = False,
    source: Source = False,
    disable: Disabled = None,
    exclude: Excluded = None,
    no_merge: NoMerge = False,
    accuracy: AccuracyOption = Options.accuracy,
    precision: PrecisionOption = "float32",
    tune: Tune = 0.0,
    cores: Cores = 0,
    l2: L2 = 0,
    html: Html = None,
    fused: Fused = None,
) -> None:
    """Say what becomes of a model, and why.

    What was folded, which ops are in which region and with which algorithm, what was left to TVM
    and for what reason.

    Examples:

    \b
      convoy explain resnet50.onnx
      convoy explain net.onnx --json | jq '.decisions[] | select(.choice == "left")'
      convoy explain net.onnx --disable nn.softmax --source
      convoy explain net.onnx --html net.html --onnx fused.onnx
    """
    import convoy

    shapes = parse_shapes(shape)
    report = Report()
    options = make_options(
        threads=threads,
        disabled=disable,
        excluded=exclude,
        no_merge=no_merge,
        accuracy=accuracy,
        precision=precision,
        tune=tune,
        cores=cores,
        l2_kilobytes=l2,
    )
    expect_file(fused, "--onnx", model)
    expect_file(html, "--html", model, fused)
    with progress(f"compiling {model.name}") as tell:
        convoy.compile(model, target, shapes=shapes, options=options, report=report, progress=tell)
    if as_json:
        print_json(report.as_dict())
    else:
        show(describe_report(report, source=source), soft_wrap=True)
    content = explain_content(report, model.name)
    if fused is not None:
        write_file(fused, make_fused_model(content).SerializeToString(), "--onnx")
        note(f"fused network: {fused}")
    if html is not None:
        write_file(html, make_page(content), "--html")
        note(f"page: {html}")
