"""``convoy compile``: ONNX in, a library for TVM's runtime out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from convoy.cli.console import expect_own_file, progress, say
from convoy.cli.options import (
    L2,
    AccuracyOption,
    Cores,
    Disabled,
    Excluded,
    Keep,
    Model,
    NoMerge,
    PrecisionOption,
    Sizes,
    Strict,
    Target,
    Threads,
    Tune,
    make_options,
    parse_sizes,
)
from convoy.options import Options
from convoy.report.decision import Report, group_refusals, summarize

Output = Annotated[
    Path,
    typer.Option(
        "-o", "--output", metavar="MODEL.so", help="Where the library is written.", show_default=False
    ),
]


def compile_model(
    model: Model,
    output: Output,
    target: Target = None,
    threads: Threads = 0,
    strict: Strict = False,
    shape: Sizes = None,
    keep: Keep = None,
    disable: Disabled = None,
    exclude: Excluded = None,
    no_merge: NoMerge = False,
    accuracy: AccuracyOption = Options.accuracy,
    precision: PrecisionOption = "float32",
    tune: Tune = 0.0,
    cores: Cores = 0,
    l2: L2 = 0,
) -> None:
    """Compile an ONNX model to a library that TVM's runtime loads.

    The library stands alone: the machine that runs it needs TVM's runtime, but neither Convoy
    nor a compiler.  A second compile of the same model takes seconds (cache).

    The default is chosen by estimates and needs no tuning.  --tune measures instead: three to seven ways
    to compute each distinct convolution, best of five runs with cold weights, those that take longest
    first. Depthwise convolutions have one way only; transposed ones, and those of open sizes, keep the
    estimated one. Tuning needs a machine like the one that will run the library, and nothing else
    running on it. What was measured is kept in the cache: the same network, or another with the same
    convolutions, finds it there, and compiles to the same library.

    Examples:

    \b
      convoy compile resnet50.onnx -o resnet50.so
      convoy compile unet.onnx -o unet.so --shape image=1x3x256x256 --threads 4
      convoy compile yolo.onnx -o yolo.so --shape "images=1x3x{320,480,640}x640"
      convoy compile resnet50.onnx -o resnet50.so --tune 60
      convoy compile net.onnx -o net.so --target haswell --strict --keep generated/

    In Python, afterwards:

    \b
      vm = tvm.relax.VirtualMachine(tvm.runtime.load_module("resnet50.so"), tvm.cpu())
      y = vm["main"](tvm.runtime.tensor(x))
    """
    import convoy
    from convoy.deploy.export import check_destination, export_library

    check_destination(output)
    expect_own_file(output, "-o", model)
    shapes = parse_sizes(shape)
    report = Report()
    options = make_options(
        threads=threads,
        strict=strict,
        keep=keep,
        disabled=disable,
        excluded=exclude,
        no_merge=no_merge,
        accuracy=accuracy,
        precision=precision,
        tune=tune,
        cores=cores,
        l2_kilobytes=l2,
    )
    with progress(f"compiling {model.name}") as show:
        executable = convoy.compile(
            model, target, shapes=shapes, options=options, report=report, progress=show
        )
        show(f"writing {output}")
        export_library(executable, output)
    for count, op, reason in group_refusals(report):
        say(f"left to TVM: {count} × {op}: {reason}")
    say(summarize(report))
