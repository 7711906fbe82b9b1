"""Ctrl-C while the command line is still importing what it is made of."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest


def run(imported: str, first: str = "") -> subprocess.CompletedProcess[bytes]:
    program = f"""
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == {imported!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
{first}
from convoy.cli import main
main()
"""
    return subprocess.run(
        [sys.executable, "-c", program, "inspect", "missing.so"], capture_output=True, timeout=60
    )


@pytest.mark.parametrize("imported", ["typer", "convoy.cli.inspect"])
def test_an_interrupt_ends_the_command_without_a_word(imported: str) -> None:
    # the shell that runs the tests in its background has it ignored
    ran = run(imported, "signal.signal(signal.SIGINT, signal.default_int_handler)")
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, b"", b"")


@pytest.mark.slow
@pytest.mark.parametrize("imported", ["typer", "convoy.cli.inspect"])
def test_one_that_is_ignored_stays_ignored(imported: str) -> None:
    ran = run(imported, "signal.signal(signal.SIGINT, signal.SIG_IGN)")
    assert ran.returncode == 1
    assert ran.stderr.startswith(b"error: inspect: missing.so: expected a library")
