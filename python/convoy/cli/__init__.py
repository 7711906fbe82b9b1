"""The ``convoy`` command: a file for each of its subcommands."""

from convoy.cli.app import main

__all__ = ["main"]
