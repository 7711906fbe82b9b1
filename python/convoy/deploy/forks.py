"""Forks between calls of TVM.

TVM's allocator has a lock.  A child that is forked while another thread holds it waits for it forever, so a
fork waits until no call is under way.  That is for ``os.fork`` and what calls it; ``subprocess`` needs none
of it.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class Turn:
    """What a thread holds while it calls TVM, and a fork while it forks; its own it may take twice."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        with _starting:
            _turns.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


_starting = threading.RLock()
_turns: WeakSet[Turn] = WeakSet()
_held: list[Turn] = []


def _before() -> None:
    _starting.acquire()
    for turn in list(_turns):
        turn.__enter__()
        _held.append(turn)


def _after() -> None:
    while _held:
        _held.pop().__exit__()
    _starting.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
