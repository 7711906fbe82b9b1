"""Forks between calls of TVM.

TVM's allocator has a lock.  A child that is forked while another thread holds it waits for it forever, so a
fork waits until no call is under way.  And TVM has a pool of threads for each thread that calls it: in the
child, that of the thread that forked has lost them, and a call that shares a loop of a library that has no
team for it would wait forever.  All that is for ``os.fork`` and what calls it;
``subprocess`` needs none of it.
"""

from __future__ import annotations

import os
import threading
from weakref import WeakSet


class _Own(threading.local):
    turns = 0
    """That this thread holds."""
    waits = True
    """Its fork waits for the turns of others."""
    forked = False
    """It is what is left of the process that forked this one."""


class Turn:
    """What a thread holds while it calls TVM, and a fork while it forks; its own it may take twice."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        with _listing:
            _turns.add(self)

    def __enter__(self) -> None:
        if _forking and not _own.turns:
            with _forks:  # a fork that waits goes first: locks are not fair
                pass
        self.lock.acquire()
        _own.turns += 1

    def __exit__(self, *_: object) -> None:
        _own.turns -= 1
        self.lock.release()


def forked() -> bool:
    """Whether this thread came with a fork: TVM's pool for it may have no threads."""
    return _own.forked


_own = _Own()
_forks = threading.RLock()
_listing = threading.RLock()
_turns: WeakSet[Turn] = WeakSet()
_held: list[Turn] = []
_forking = False


def _before() -> None:
    global _forking
    # a thread that forks in its own turn, as a signal handler may, waits for no fork that waits for it
    _own.waits = _forks.acquire(blocking=not _own.turns)
    if _own.waits:
        _forking = True
        with _listing:
            turns = list(_turns)
        for turn in turns:
            turn.lock.acquire()
            _held.append(turn)
        _listing.acquire()


def _after() -> None:
    global _forking
    if _own.waits:
        _listing.release()
        while _held:
            _held.pop().lock.release()
        _forking = False
        _forks.release()


def _after_in_child() -> None:
    """The thread that forks is the only one; what others hold is nobody's."""
    global _forking, _forks, _listing
    _own.forked = True
    _after()
    if not _own.waits:
        _forking, _forks, _listing = False, threading.RLock(), threading.RLock()
        _held.clear()
        for turn in list(_turns):
            turn.lock = threading.RLock()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_after_in_child)
