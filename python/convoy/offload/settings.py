"""What a compilation was asked for, and where it reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from convoy.errors import ConvoyError
from convoy.log import log_step
from convoy.offload.in_force import InForce
from convoy.options import Options
from convoy.report.decision import Report

Pass = TypeVar("Pass")
Progress = Callable[[str], None]
"""Called with what is being done, in words."""


@dataclass(frozen=True)
class Settings:
    """What a compilation was asked for."""

    options: Options = field(default_factory=Options)
    report: Report = field(default_factory=Report)
    progress: Progress | None = None
    stopped_by: list[BaseException] = field(default_factory=list)
    """What ``progress`` raised, as it was: on its way through TVM's C++ it may become another error."""

    def tell(self, text: str) -> None:
        """Say what is being done, to the log too."""
        log_step(text)
        if self.progress is not None:
            try:
                self.progress(text)
            except BaseException as error:
                self.stopped_by.append(error)
                raise

    def tell_unit(self, done: int, total: int, unit: str) -> None:
        """Say how far the compiler is: ``toolchain.compiler.Progress``."""
        self.tell(f"compiled {done} of {total} C units: {unit}")


_MAKE_PASSES = {"fold": "", "partition": "", "no_touch": "a_pass"}
"""Functions that make a pass, and what of."""

_LONGEST = 100
"""Characters of what a user gave, written as Python does; its type alone is told of more."""

_settings = InForce("convoy_settings", Settings)
traced = InForce("convoy_traced", bool)
"""Whether what is compiled tells when each of its steps begins and ends (``convoy/trace.h``)."""


def using(options: Options | None = None, report: Report | None = None) -> AbstractContextManager[None]:
    """Options and report for what TVM compiles with a ``convoy`` target within the block.

    >>> with convoy.relax.using(Options(strict=True)):
    ...     tvm.compile(module, target="convoy")

    ``convoy.relay.using`` is the same for ``relay.build``.

    Raises
    ------
    ConvoyError
        For options or a report that are none.
    """
    return _settings.using(make_settings("using", options, report))


def make_settings(function: str, options: object, report: object, progress: object = None) -> Settings:
    """What a user gave ``function``, defaults in place of None.

    Raises
    ------
    ConvoyError
        For options, a report or a progress that are none.
    """
    if not isinstance(options, Options | None):
        raise _wrong(function, "Options", options, "write convoy.Options(threads=2)")
    if not isinstance(report, Report | None):
        raise _wrong(function, "a Report", report, "write convoy.Report()")
    if progress is not None and not callable(progress):
        raise _wrong(function, "a function of a text", progress, "write progress=print")
    return Settings(options or Options(), report if report is not None else Report(), progress)


def read_report(function: str, report: Report | None) -> Report:
    """The report a user gave ``function``, an empty one in place of None.

    Raises
    ------
    ConvoyError
        For anything else.
    """
    return make_settings(function, None, report).report


def read_passes(function: str, given: object, kind: type[Pass]) -> list[Pass]:
    """One pass, or several, that a user gave ``function``; ``kind`` is TVM's class of them.

    Raises
    ------
    ConvoyError
        For anything else.
    """
    passes = [given] if isinstance(given, kind) else given
    if not isinstance(passes, Sequence) or not all(isinstance(item, kind) for item in passes):
        remedy = "make it: relax.transform.FoldConstant()"
        raise _wrong(function, "a pass, or several in a list", given, remedy)
    return list(passes)


def _wrong(function: str, expected: str, given: object, remedy: str) -> ConvoyError:
    """What a user gave ``function`` is none of what it takes; a module is for the pass that it makes."""
    kind, shown = type(given).__name__, repr(given)
    if kind == "IRModule" and (made_of := _MAKE_PASSES.get(function)) is not None:
        remedy = f"give the module to the pass: {function}({made_of})(module)"
    got = shown if len(shown) <= _LONGEST and "\n" not in shown else f"an object of type {kind}"
    return ConvoyError("options", function, f"expected {expected}, got {got}", remedy)


def is_disabled(name: str, context: Any) -> bool:
    """Has a pass context switched off the pass of this name?  TVM itself asks for a guard's name only."""
    return name in map(str, context.disabled_pass or ())


def current_settings() -> Settings:
    """The settings in force; without any, the defaults."""
    return _settings.current()
