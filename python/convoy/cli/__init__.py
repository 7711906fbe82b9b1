"""The ``convoy`` command: compile, run, check, explain and bench, one file each."""

from convoy.cli.app import main

__all__ = ["main"]
