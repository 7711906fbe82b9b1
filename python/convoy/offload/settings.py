"""What a compilation was asked for, and where it reports."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from convoy.errors import ConvoyError
from convoy.offload.scoped import Scoped
from convoy.options import Options
from convoy.report.decision import Report

Progress = Callable[[str], None]
"""Called with what is being done, in words."""


@dataclass(frozen=True)
class Settings:
    """What a compilation was asked for."""

    options: Options = field(default_factory=Options)
    report: Report = field(default_factory=Report)
    progress: Progress | None = None

    def tell(self, text: str) -> None:
        """Say what is being done."""
        if self.progress is not None:
            self.progress(text)

    def tell_unit(self, done: int, total: int, unit: str) -> None:
        """Say how far the compiler is: ``toolchain.compiler.Progress``."""
        self.tell(f"compiled {done} of {total} C units: {unit}")


_settings = Scoped("convoy_settings", Settings)


def using(options: Options | None = None, report: Report | None = None) -> AbstractContextManager[None]:
    """Options and report for what TVM compiles with a ``convoy`` target within the block.

    >>> with convoy.relax.using(Options(strict=True)):
    ...     tvm.compile(module, target="convoy")

    ``convoy.relay.using`` is the same for ``relay.build``.

    Raises
    ------
    ConvoyError  for options that are none
    """
    if options is not None and not isinstance(options, Options):
        raise ConvoyError(
            "options",
            "using",
            f"expected Options, got {options!r}",
            "write convoy.options.Options(threads=2)",
        )
    return _settings.using(Settings(options or Options(), report if report is not None else Report()))


def current_settings() -> Settings:
    """The settings in force; without any, the defaults."""
    return _settings.current()
