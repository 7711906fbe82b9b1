"""State that TVM keeps in classes, made each thread's own.

TVM's Python notes in class attributes what is being built, as if no other thread built anything: of two
that compile at once, one finds the other's, and what TVM itself says of it blames the model.
"""

from __future__ import annotations

import threading
from collections import UserList
from typing import Any


class PerThreadList(threading.local, UserList[Any]):
    """A list of which each thread sees its own, empty at first."""


def with_own_attribute(owner: type, attribute: str) -> type:
    """A subclass of ``owner`` whose class attribute is each thread's own, at first that of ``owner``."""
    begin, here = getattr(owner, attribute), threading.local()

    def read(_: type) -> object:
        return getattr(here, "value", begin)

    def write(_: type, value: object) -> None:
        here.value = value

    meta: Any = type(owner)
    owned = type(meta.__name__, (meta,), {attribute: property(read, write)})
    made: type = owned(owner.__name__, (owner,), {})
    return made
