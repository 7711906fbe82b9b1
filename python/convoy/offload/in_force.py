"""A value that is in force for a block, for what TVM calls back into Python without our arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, TypeVar

Value = TypeVar("Value")


class InForce(Generic[Value]):
    """``using(value)`` puts a value in force within a block; ``current()`` is the innermost one.

    Parameters
    ----------
    name : str
        For debuggers.
    default : Callable[[], Value]
        Makes what is current outside of any block.
    """

    def __init__(self, name: str, default: Callable[[], Value]) -> None:
        self._value: ContextVar[Value | None] = ContextVar(name, default=None)
        self._default = default

    def chosen(self) -> Value | None:
        """The innermost value; None outside of any block."""
        return self._value.get()

    def current(self) -> Value:
        value = self._value.get()
        return self._default() if value is None else value

    @contextmanager
    def using(self, value: Value) -> Iterator[None]:
        token = self._value.set(value)
        try:
            yield
        finally:
            self._value.reset(token)
