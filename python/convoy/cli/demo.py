"""``scripts/demo``: ResNet-50 through Convoy, ONNX Runtime and plain TVM, and one table.

The model is the one that ships inside the ``onnx`` package, with seeded random weights.  It is
compiled, exported, run by TVM's virtual machine, compared with ONNX Runtime before its softmax,
and timed in interleaved rounds; an engine that takes seconds an image, as plain TVM does, runs once.
The compiler's cache keeps objects and plain TVM's library, so a second run is a quick one.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import onnx
import typer

from convoy import target, zoo
from convoy.bench.accuracy import BOUND
from convoy.bench.engines import ENGINES, TITLES, check_engines
from convoy.bench.measure import Timing, measure
from convoy.bench.text import format_ms
from convoy.cli.console import note, print_error, progress, show, take_over
from convoy.deploy.export import export_library
from convoy.deploy.runtime import keep_torch_out
from convoy.errors import ConvoyError
from convoy.report.decision import Report, count_ops, group_refusals
from convoy.report.sheet import Sheet, stack

Name = Annotated[str, typer.Option("--model", metavar="NAME", help=f"One of {', '.join(zoo.names())}.")]
Against = Annotated[
    str,
    typer.Option("--against", metavar="NAMES", help=f"Engines to compare with, of {', '.join(ENGINES)}."),
]
Threads = Annotated[
    int,
    typer.Option("--threads", min=0, metavar="N", help="Threads of every engine; 0: the physical cores."),
]
Rounds = Annotated[int, typer.Option("--rounds", min=1, metavar="N", help="Interleaved rounds.")]


def show_demo(
    model: Name = "resnet50",
    against: Against = "onnxruntime,tvm",
    threads: Threads = 0,
    rounds: Rounds = 7,
) -> None:
    """Compile a network that ships with onnx, compare it with ONNX Runtime, time it, print one table."""
    import convoy

    started = time.perf_counter()
    peers = [name for name in against.split(",") if name and name != "convoy"]
    check_engines(peers)
    count = threads or target.host().cores
    with progress(model) as tell, tempfile.TemporaryDirectory() as folder:
        tell("giving it seeded weights")
        # compared before the softmax, where an error shows; a softmax takes none of the time
        proto = zoo.strip_softmax(zoo.load(model))
        path = Path(folder) / "model.onnx"
        onnx.save(proto, path)
        report = Report()
        compiling = time.perf_counter()
        executable = convoy.compile(path, threads=count, report=report, progress=tell)
        compiled = time.perf_counter() - compiling
        library = Path(folder) / "model.so"
        export_library(executable, library)
        del executable  # it holds the weights
        timings = measure(
            path,
            ["convoy", *peers],
            threads=count,
            rounds=rounds,
            slow_runs=1,
            artifacts={"convoy": library},
            progress=tell,
        ).timings
    show(_table(model, report, compiled, timings, count))
    note(f"{time.perf_counter() - started:.0f} s in all; the second time is quicker (cache)")
    if any(not timing.error <= BOUND for timing in timings):
        raise typer.Exit(1)


def _table(model: str, report: Report, compiled: float, timings: tuple[Timing, ...], threads: int) -> Sheet:
    taken, left = count_ops(report)
    table = Sheet(title=f"{model}, float32, batch 1, {threads} threads", show_header=False)
    table.add_row("ops offloaded", f"{taken} ({100 * report.flops_share:.2f} % of the FLOPs)")
    reasons = [f"{count} × {op}: {reason}" for count, op, reason in group_refusals(report)]
    table.add_row("ops left to TVM", stack([str(left), *reasons]))
    table.add_row("regions", str(len(report.regions)))
    table.add_row("compiled in", f"{compiled:.1f} s")
    table.add_row("largest error / largest output", f"{timings[0].error:.1e} (bound {BOUND:g})")
    table.add_section()
    for t in timings:
        speed = "" if t is timings[0] else f", {t.ratio:.2f} × Convoy's time"
        often = "one run" if t.rounds == 1 else f"median of {t.rounds} rounds"
        table.add_row(f"{TITLES[t.engine]}, ms", f"{format_ms(t.milliseconds)}  ({often}{speed})")
    return table


app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command()(show_demo)


def main() -> None:
    """Run the demo; an error is one line and exit code 1."""
    keep_torch_out()
    take_over()
    try:
        app(prog_name="scripts/demo")
    except ConvoyError as error:
        print_error(error)
        sys.exit(1)


if __name__ == "__main__":
    main()
