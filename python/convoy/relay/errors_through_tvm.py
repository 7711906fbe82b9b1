"""Let Convoy's errors keep their type on the way through TVM's C++.

A codegen is called by C++, and C++ turns an exception of a type it does not know into a TVMError that
holds its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, TypeVar

import tvm

from convoy.errors import ConvoyError

Function = TypeVar("Function", bound=Callable[..., Any])

_remembered: ContextVar[list[BaseException] | None] = ContextVar("convoy_remembered", default=None)
"""The errors that left Python in the block of ``raise_remembered``."""


def remember_error(function: Function) -> Function:
    """``function``, which C++ calls, remembering the error it raises.

    TVM's bridge to C++ knows no ``BaseException``: Ctrl-C arrives as an ``InterruptedError``.
    """

    @wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except (ConvoyError, MemoryError, KeyboardInterrupt) as error:
            waiting = _remembered.get()
            if waiting is not None:
                waiting.append(error)
            if isinstance(error, KeyboardInterrupt):
                raise InterruptedError("Ctrl-C") from error
            raise

    return call  # type: ignore[return-value]


def has_remembered() -> bool:
    """Has an error left Python in the block of ``raise_remembered``?  TVM made another of it."""
    return bool(_remembered.get())


@contextmanager
def raise_remembered() -> Iterator[None]:
    """Raise again what left Python within the block, instead of what was made of it."""
    waiting: list[BaseException] = []
    token = _remembered.set(waiting)
    try:
        yield
    except (tvm.TVMError, InterruptedError) as error:
        if waiting:
            raise waiting[0] from error
        raise
    finally:
        _remembered.reset(token)
