"""Forks between calls of TVM.

TVM's allocator has a lock.  A child that is forked while another thread holds it waits for it forever, so a
fork waits until no call is under way.  That is for ``os.fork`` and what calls it; ``subprocess`` needs none
of it.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class _Own(threading.local):
    turns = 0
    """That this thread holds."""


class Turn:
    """What a thread holds while it calls TVM, and a fork while it forks; its own it may take twice."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        with _starting:
            _turns.add(self)

    def __enter__(self) -> None:
        if _forking and not _own.turns:
            with _starting:  # a fork that waits goes first: locks are not fair
                pass
        self.lock.acquire()
        _own.turns += 1

    def __exit__(self, *_: object) -> None:
        _own.turns -= 1
        self.lock.release()


_own = _Own()
_starting = threading.RLock()
_turns: WeakSet[Turn] = WeakSet()
_held: list[Turn] = []
_forking = False


def _before() -> None:
    global _forking
    _starting.acquire()
    _forking = True
    for turn in list(_turns):
        turn.lock.acquire()
        _held.append(turn)


def _after() -> None:
    global _forking
    while _held:
        _held.pop().lock.release()
    _forking = False
    _starting.release()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after)
