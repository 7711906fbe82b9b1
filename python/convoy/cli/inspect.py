"""``convoy inspect``: what a library says of itself."""

from __future__ import annotations

from typing import Annotated

import typer

from convoy.cli.console import print_json, say, show
from convoy.cli.options import Library
from convoy.deploy.description import Description, check_file, read_description, read_example
from convoy.errors import ModelError
from convoy.report.decision import count_of, format_flops
from convoy.report.sheet import Sheet, stack
from convoy.report.text import format_bytes
from convoy.text import line

Json = Annotated[bool, typer.Option("--json", help="Print it as JSON, for programs.")]


def inspect_library(library: Library, as_json: Json = False) -> None:
    """Print what a compiled library says of itself.

    Its inputs and outputs, the CPU and the threads it was compiled for, what made it, what is in its
    regions and what was left to TVM.  Nothing in it is run.

    Examples:

    \b
      convoy inspect resnet50.so
      convoy inspect resnet50.so --json | jq .inputs
    """
    check_file(library, "inspect")
    found, example = read_description(library), read_example(library)
    if found is None:
        raise ModelError(
            "inspect",
            str(library),
            "expected a library that describes itself, got one that does not",
            "name what convoy compile wrote; a library of an older Convoy is made again",
        )
    if as_json:
        print_json({**found.as_dict(), "example": example is not None})
        return
    show(_table(found, example is not None))
    for count, op, reason in found.report["left"]:
        say(line(f"left to TVM: {count} × {op}: {reason}"))


def _table(found: Description, example: bool) -> Sheet:
    table = Sheet.bare()
    table.add_row("inputs", stack(map(str, found.inputs)))
    table.add_row("outputs", stack(map(str, found.outputs)))
    for number, version in enumerate(found.versions):
        sizes = (f"{tensor} " for tensor in (*version.inputs, *version.outputs))
        table.add_row("" if number else "versions", line("; ".join(map(str.strip, sizes))))
    table.add_row("compiled for", f"{found.cpu or 'any CPU'}, {found.instructions} kernels")
    table.add_row("precision", found.precision)
    threads = count_of(found.threads, "thread") if found.threads else "a thread for each physical core"
    table.add_row("threads", threads)
    table.add_row("made by", stack(f"{name} {version}" for name, version in found.made_by.items()))
    report = found.report
    share = 100 * report["flops_offloaded"] / report["flops"] if report["flops"] else 100
    table.add_row("offloaded", f"{share:.2f} % of {format_flops(report['flops'])}")
    for region in report["regions"]:
        kernels = ", ".join(f"{count} × {kind}" for kind, count in region["kernels"].items())
        room = (
            f"weights {format_bytes(region['weight_bytes'])}, arena {format_bytes(region['arena_bytes'])}"
        )
        table.add_row(region["symbol"], stack([f"{format_flops(region['flops'])}, {room}", kernels]))
    table.add_row("example", "inputs with expected outputs" if example else "none")
    return table
