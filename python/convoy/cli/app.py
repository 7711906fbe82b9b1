"""The command line's entry: the commands by name, and errors as one line."""

from __future__ import annotations

import errno
import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import convoy
from convoy.cli.console import be_quiet, print_error, say, take_over
from convoy.cli.interrupts import ending_at_once
from convoy.deploy.runtime import keep_torch_out
from convoy.errors import ConvoyError

COMMANDS = {
    "compile": "compile_model",
    "run": "run_library",
    "check": "check_model",
    "explain": "explain_model",
    "inspect": "inspect_library",
    "doctor": "examine",
    "bench": "bench_model",
    "profile": "profile_model",
    "bisect": "bisect_model",
}
"""The commands in the order of the help: a file each, and the function in it."""


QUIET = ("--quiet", "-q")
_QUIET = "Print results and errors, and nothing beside them."


class _Commands(TyperGroup):
    """Imports a command when it is named: ``convoy run`` needs little of what the others do."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            meant = get_close_matches(cmd_name, COMMANDS, 1)
            if meant and not ctx.resilient_parsing:
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {meant[0]!r}?")
            return None
        with ending_at_once():
            command = getattr(import_module(f"convoy.cli.{cmd_name}"), COMMANDS[cmd_name])
        alone = typer.Typer(rich_markup_mode=None, add_completion=False)
        alone.command(cmd_name)(command)
        return typer.main.get_command(alone)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """``--quiet`` may stand behind the command, too."""
        quiet = [word for word in args if word in QUIET][:1]
        return list(super().parse_args(ctx, quiet + [word for word in args if word not in QUIET]))


def _print_version(given: bool) -> None:
    if given:
        say(f"convoy {convoy.__version__}")
        raise typer.Exit()


app = typer.Typer(
    name="convoy",
    cls=_Commands,
    help="Compile ONNX networks to fused C kernels inside TVM executables.\n\n"
    "A first tour:\n\n"
    "\b\n"
    "  convoy explain model.onnx              what will be folded, offloaded, left, and why\n"
    "  convoy check model.onnx                is the answer ONNX Runtime's?\n"
    "  convoy compile model.onnx -o model.so  the library TVM's runtime loads\n"
    "  convoy inspect model.so                what the library says of itself\n"
    "  convoy run model.so -i in.npy -o out.npy\n"
    "  convoy bench model.onnx --against onnxruntime,tvm\n"
    "  convoy profile model.onnx              where the time goes\n"
    "  convoy bisect model.onnx               the smallest part of it that fails\n"
    "  convoy doctor                          what is here, what is missing\n\n"
    "CONVOY_DEBUG=1 shows the traceback of an error.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.callback()
def _convoy(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it and exit.")
    ] = False,
    quiet: Annotated[bool, typer.Option(*QUIET, help=_QUIET)] = False,
) -> None:
    """What all commands share."""
    if quiet:
        be_quiet()


def main() -> None:
    """Run the command line; an error is one line on stderr and exit code 1.

    Exit codes: 0 done · 1 it failed, or ``check`` found an error past the bound · 2 a wrong option.
    """
    keep_torch_out()
    take_over()
    try:
        app(prog_name="convoy")
    except ConvoyError as error:
        if os.environ.get("CONVOY_DEBUG") == "1":
            raise
        print_error(error)
        sys.exit(1)
    except MemoryError as error:
        if os.environ.get("CONVOY_DEBUG") == "1":
            raise
        got = str(error).splitlines()[0] if str(error) else "too little"
        print_error(
            f"convoy: memory: expected enough of it, got {got}; free some, or ask for smaller sizes"
        )
        sys.exit(1)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.ENOSPC):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python writes the rest as it ends
        if error.errno == errno.ENOSPC:  # not the pipe of convoy explain | head
            print_error(f"write: the output: expected room for it, got {error.strerror}; make some")
        sys.exit(1)
