"""Let Convoy's errors keep their type on the way through TVM's C++.

A pass is called by C++, and C++ turns an exception of a type it does not know into a RuntimeError.
"""

from __future__ import annotations

import tvm_ffi

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
