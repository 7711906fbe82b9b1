"""Let errors keep their type on the way through TVM's C++.

A pass or a codegen is called by C++, and C++ turns an exception of a type it does not know into a
RuntimeError.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import tvm_ffi
from tvm_ffi import core

from convoy import errors


def keep_error_types() -> None:
    """Register every error of ``convoy.errors``, so that what a pass raises is what its caller gets.

    Ctrl-C during a pass, too, stays a ``KeyboardInterrupt``.
    """
    tvm_ffi.register_error("KeyboardInterrupt", KeyboardInterrupt)
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.ConvoyError):
            name = f"convoy.{error.__name__}"
            tvm_ffi.register_error(name, error)  # what leaves Python as this type …
            tvm_ffi.register_error(name, _from_text(error))  # … comes back as this one


def _from_text(error: type[errors.ConvoyError]) -> type[errors.ConvoyError]:
    """A subclass of ``error`` made from its text, which is all that C++ carries."""

    def __init__(self: errors.ConvoyError, text: str) -> None:
        errors.ConvoyError.__init__(self, *errors.ConvoyError.parse(text))

    return type(error.__name__, (error,), {"__init__": __init__, "__module__": error.__module__})


# What codegens of others raise ---------------------------------------------------------------------


@contextmanager
def telling_whose(functions: Sequence[str]) -> Iterator[None]:
    """What a codegen raises in the block stays of its type, with a line on the functions it was given.

    C++ is told of all types for as long as that, since nobody knows which one a codegen raises.

    Parameters
    ----------
    functions : Sequence[str]
        Those of others' codegens; none: nothing is changed.
    """
    kinds = _unknown_kinds(Exception) if functions else []
    for kind in kinds:
        name = f"codegen.{kind.__module__}.{kind.__qualname__} {id(kind)}"
        core.ERROR_TYPE_TO_NAME[kind] = name
        core.ERROR_NAME_TO_TYPE[name] = type(kind.__name__, (), {"__new__": _maker(kind)})
    try:
        yield
    except (errors.ConvoyError, MemoryError):
        raise
    except Exception as error:
        if not functions:
            raise
        text = error.args[0] if isinstance(error, KeyError) and error.args else str(error)
        line = f"raised over {', '.join(functions)}"
        raise _made(type(error), f"{text}\n{line}".lstrip()).with_traceback(error.__traceback__) from None
    finally:
        for kind in kinds:
            core.ERROR_NAME_TO_TYPE.pop(core.ERROR_TYPE_TO_NAME.pop(kind, ""), None)


def is_of_codegen(error: BaseException) -> bool:
    """Has a codegen of others raised this?"""
    return isinstance(error, _OfCodegen)


class _OfCodegen(Exception):
    """An error that is made of its text."""

    def __str__(self) -> str:
        return str(self.args[0])


def _unknown_kinds(kind: type[Exception]) -> list[type[Exception]]:
    """``kind`` and those below it that C++ would make a RuntimeError of, but for the end of an iterator."""
    if kind is StopIteration:
        return []
    below = [found for sub in kind.__subclasses__() for found in _unknown_kinds(sub)]
    return below if kind in core.ERROR_TYPE_TO_NAME else [kind, *below]


def _maker(kind: type[Exception]) -> Callable[[type, str], Exception]:
    return lambda _, text: _made(kind, text)


def _made(kind: type[Exception], text: str) -> Exception:
    """An error of this kind and text; a RuntimeError that names it if none can be made so."""
    try:
        return _kind_from_text(kind)(text)  # type: ignore[arg-type]
    except Exception:
        return _kind_from_text(RuntimeError)(f"{kind.__name__}: {text}")


@cache
def _kind_from_text(kind: type[Exception]) -> type[Exception]:
    """A subclass of ``kind`` that C++ knows; itself if it is such."""
    if issubclass(kind, _OfCodegen):
        return kind

    def __init__(self: Exception, text: str) -> None:
        Exception.__init__(self, text)
        if isinstance(self, OSError) and (number := re.match(r"\[Errno (\d+)\]", text)):
            self.errno = int(number[1])

    members = {"__init__": __init__, "__module__": kind.__module__, "__qualname__": kind.__qualname__}
    made = type(kind.__name__, (_OfCodegen, kind), members)
    tvm_ffi.register_error(f"convoy.codegen {kind.__module__}.{kind.__qualname__} {id(made)}", made)
    return made
