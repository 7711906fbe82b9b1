"""The ``convoy`` command: a file for each of its subcommands."""

from convoy.cli.interrupts import ending_at_once

__all__ = ["main"]


def main() -> None:
    """Run the command line (``app.main``), which takes a while to import."""
    with ending_at_once():
        from convoy.cli import app
    app.main()
