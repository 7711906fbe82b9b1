"""Options by name, and how they travel with the functions TVM compiles later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any
from urllib.parse import parse_qsl, urlencode

from tvm import relay

from convoy.errors import ConvoyError
from convoy.options import Options
from convoy.relay.dataflow import attribute

ATTRIBUTE = "convoy_options"
"""The attribute of an external function with its options, as ``threads=0&accuracy=fast``."""


def make_options(given: Mapping[str, Any], basis: Options) -> Options:
    """``basis`` with the options that are given by name, as Python values or as text.

    >>> make_options({"threads": "2", "disabled_ops": "nn.softmax,nn.lrn"}, Options())

    Raises
    ------
    ConvoyError
        For an option that does not exist, or a value that does not fit.
    """
    known = {field.name: getattr(basis, field.name) for field in fields(Options)}
    for name, value in given.items():
        key = name.replace("-", "_")
        if key not in known:
            raise ConvoyError(
                "options",
                f"option {name!r}",
                f"expected one of {', '.join([*known, 'folding'])}, got {name}",
                "correct it",
            )
        known[key] = _read(key, value)
    return Options(**known)


def read_folding(value: Any) -> bool:
    """The option of ``partition_for_convoy`` that is none of ``Options``: codegen does not ask for it.

    Raises
    ------
    ConvoyError
        For a value that does not fit.
    """
    return bool(_read("folding", value))


def _read(name: str, value: Any) -> Any:
    """A value as the option has it; ``Options`` itself reads names."""
    try:
        return _READERS[name](value) if name in _READERS else value
    except (ValueError, KeyError, TypeError) as problem:
        expected = f"expected {_FITTING[name]}, got {value!r}"
        raise ConvoyError("options", f"option {name!r}", expected, "correct it") from problem


def _number(value: Any) -> Any:
    return int(value) if isinstance(value, str) else value


def _flag(value: Any) -> bool:
    """A truth value, or its name."""
    return {"true": True, "1": True, "false": False, "0": False}[str(value).lower()]


def _folder(value: Any) -> Any:
    """``Options`` makes it a path; an empty text is none."""
    return value or None


_READERS: Mapping[str, Any] = {
    **dict.fromkeys(("threads", "cores", "l2_bytes"), _number),
    **dict.fromkeys(("accuracy", "precision"), str), "tune": float,
    "strict": _flag, "merge": _flag, "keep": _folder, "cache": _folder, "folding": _flag,
}  # fmt: skip
_FITTING = {
    "threads": "a number of threads", "cores": "a number of cores", "l2_bytes": "a number of bytes",
    "tune": "a number of seconds",
    **dict.fromkeys(("strict", "merge", "folding"), "true or false"),
}  # fmt: skip
_TRAVELLING = ("threads", "accuracy", "precision", "tune", "keep", "cache", "cores", "l2_bytes")
"""The options that code generation asks for."""


def with_options(function: relay.Function, options: Options) -> relay.Function:
    """``function`` with the options its code is to be made with, as text that TVM's parser reads, too."""
    values = {name: getattr(options, name) for name in _TRAVELLING}
    return function.with_attr(ATTRIBUTE, urlencode({k: v for k, v in values.items() if v is not None}))


def read_options(function: relay.Function) -> Options | None:
    """The options a function carries."""
    text = attribute(function, ATTRIBUTE)
    return make_options(dict(parse_qsl(text)), Options()) if text else None
