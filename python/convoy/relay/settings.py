"""What a compilation was asked for, and how it travels with the functions TVM compiles later."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tvm import relay

from convoy.errors import ConvoyError
from convoy.options import Options
from convoy.report.decision import Report

ATTRIBUTE = "convoy_options"
"""Of an external function: the options its code is made with, as JSON."""


@dataclass(frozen=True)
class Settings:
    """What a compilation was asked for."""

    options: Options
    report: Report


_settings: ContextVar[Settings | None] = ContextVar("convoy_relay_settings", default=None)


@contextmanager
def using(options: Options | None = None, report: Report | None = None) -> Iterator[None]:
    """Options and report for what TVM compiles with a ``convoy`` target within the block.

    >>> with convoy.relay.using(Options(strict=True)):
    ...     relay.build(module, target="convoy", params=params)
    """
    token = _settings.set(Settings(options or Options(), report if report is not None else Report()))
    try:
        yield
    finally:
        _settings.reset(token)


def current_settings() -> Settings:
    """The settings in force; without any, the defaults."""
    return _settings.get() or Settings(Options(), Report())


def make_options(given: Mapping[str, Any], basis: Options) -> Options:
    """``basis`` with the options that are given by name, as Python values or as text.

    >>> make_options({"threads": "2", "disabled_ops": "nn.softmax,nn.lrn"}, Options())

    Raises
    ------
    ConvoyError  for an option that does not exist, or a value that does not fit
    """
    known = {field.name: getattr(basis, field.name) for field in fields(Options)}
    for name, value in given.items():
        key = name.replace("-", "_")
        if key not in known:
            raise ConvoyError(
                "options",
                f"option {name!r}",
                f"expected one of {', '.join(known)}, got {name}",
                "correct it",
            )
        try:
            known[key] = _READERS[key](value)
        except (ValueError, KeyError) as problem:
            raise ConvoyError(
                "options", f"option {name!r}", f"expected a value that fits, got {value!r}", "correct it"
            ) from problem
    return Options(**known)


def _names(value: Any) -> frozenset[str]:
    return frozenset(value.split(",") if isinstance(value, str) else value) - {""}


def read_flag(value: Any) -> bool:
    """A truth value, or its name."""
    return {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]


def _folder(value: Any) -> Path | None:
    return Path(value) if value else None


def _accuracy(value: Any) -> str:
    return {"fast": "fast", "direct": "direct"}[str(value)]


_READERS: Mapping[str, Any] = {
    "threads": int, "accuracy": _accuracy, "tune": float, "strict": read_flag, "merge": read_flag,
    "disabled_patterns": _names, "disabled_ops": _names, "exclude": _names, "keep": _folder,
    "cache": _folder,
}  # fmt: skip
_TRAVELLING = ("threads", "accuracy", "tune", "keep", "cache")
"""The options that code generation asks for."""


def with_options(function: relay.Function, options: Options) -> relay.Function:
    """``function`` with the options its code is to be made with."""
    values = {name: getattr(options, name) for name in _TRAVELLING}
    return function.with_attr(ATTRIBUTE, json.dumps(values, default=str))


def read_options(function: relay.Function) -> Options | None:
    """The options a function carries."""
    attrs = function.attrs
    if attrs is None or ATTRIBUTE not in attrs.keys():  # noqa: SIM118
        return None
    return make_options(json.loads(str(attrs[ATTRIBUTE])), Options())
