"""Find the pass that changed or removed a function which belongs to an external codegen."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import FrameType
from typing import Any, NamedTuple

from convoy.errors import GuardError
from convoy.options import read_names

GUARDED = "no_touch("
"""How the name of a guarded pass begins, in both doors.

The guard sees to it that functions stay as they are.  A local one may go with the code that calls it, or
read what a pass has put around it.
"""

Functions = Mapping[str, Any]
"""Marked functions by a name for a report."""


class _Pass(NamedTuple):
    """A pass under way."""

    name: str
    functions: Functions
    """Those it is not to touch."""
    module: Any
    """What it got."""
    caller: FrameType
    """The Python code that called it, or what it is a part of: it runs as long as the pass does."""


class _Running(threading.local):
    """Passes that run, each thread's own: one instrument may stand in the pass contexts of several."""

    def __init__(self) -> None:
        self.passes: list[_Pass] = []


class Watch:
    """What the doors' pass instruments ``NoTouch`` ask before and after each pass.

    A function that is the same object before and after is not compared: functions carry their weights,
    which take long to hash, and an object somebody holds is never changed in place.

    Parameters
    ----------
    makers : Iterable[str]
        Names of the passes that may change marked functions, alone or through passes they run.
    find_marked : Callable[[Any], Functions]
        The marked functions of a module.
    structural_hash : Callable[[Any], int]
        Hash of a function, constants included.
    remedy : str
        What to do about a pass that touched a function.
    count_outside : Callable[[Any], int]
        How many ops and functions of a module are not marked, nor in a marked one.
    """

    def __init__(
        self,
        makers: Iterable[str],
        find_marked: Callable[[Any], Functions],
        structural_hash: Callable[[Any], int],
        remedy: str,
        count_outside: Callable[[Any], int],
    ) -> None:
        self.makers = read_names("makers", makers)
        self.find_marked = find_marked
        self.structural_hash = structural_hash
        self.remedy = remedy
        self.count_outside = count_outside
        self._here = _Running()

    @property
    def running(self) -> list[_Pass]:
        """The passes under way in this thread, outermost first."""
        return self._here.passes

    def begin(self) -> None:
        """Forget what an earlier run left behind."""
        self.running.clear()

    def before(self, name: str, module: Any) -> None:
        """Pass ``name`` is about to run.

        One that failed never came to its end: what called it does not run any more.
        """
        caller = _find_caller()
        stack = set[FrameType]()
        frame: FrameType | None = caller
        while frame is not None:
            stack.add(frame)
            frame = frame.f_back
        self.running[:] = [one for one in self.running if one.caller in stack]
        self.running.append(_Pass(name, self.find_marked(module), module, caller))

    def after(self, name: str, module: Any) -> None:
        """Pass ``name`` has run.

        Raises
        ------
        GuardError
            If it touched a function; it names the pass with those that ran it, outermost first.
        """
        while self.running:
            latest = self.running.pop()
            if latest.name == name:  # else a pass that failed and never got here
                break
        else:
            return
        path = [*(outer.name for outer in self.running), name]
        if name.startswith(GUARDED) or not self.makers.isdisjoint(path):
            after = self.find_marked(module)
            now = {function: after.get(named) for named, function in latest.functions.items()}
        else:
            now = self._check(" > ".join(path), latest, module)
        self.running[:] = [one._replace(functions=_follow(one.functions, now)) for one in self.running]

    def _check(self, step: str, ran: _Pass, module: Any) -> dict[Any, Any]:
        """Each function is still there, whatever the pass made of the code around it.

        Gives those that are equal, but other objects now.
        """
        before, after = ran.functions, self.find_marked(module)
        same = set(after.values())
        missing = {name: function for name, function in before.items() if function not in same}
        if not missing:
            return {}
        hashes = {function: self.structural_hash(function) for function in same.union(before.values())}
        equal = {hashes[function]: function for function in after.values()}
        now: dict[Any, Any] = {}
        for name, function in missing.items():
            there, known = after.get(name), hashes[function]
            now[function] = there if there is not None and hashes[there] == known else equal.get(known)
            if now[function] is None:
                raise self._touched(step, name, is_there=name in after)
        self._check_numbers(step, ran, module, after, hashes)
        return now

    def _check_numbers(
        self, step: str, ran: _Pass, module: Any, after: Functions, hashes: Mapping[Any, int]
    ) -> None:
        """None of equal functions has gone but by becoming one with another.

        What a pass has changed is another in its place; what it has opened is work outside.
        """
        before = ran.functions
        were, are = (Counter(hashes[one] for one in set(found.values())) for found in (before, after))
        gone = [name for name, one in before.items() if are[hashes[one]] < were[hashes[one]]]
        others = [name for name in gone if name in after and hashes[after[name]] not in were]
        if others:
            raise self._touched(step, others[0], is_there=True)
        gone = [name for name in gone if before[name] not in set(after.values())]
        if gone and self.count_outside(module) > self.count_outside(ran.module):
            raise self._touched(step, gone[0], is_there=False)

    def _touched(self, step: str, name: str, *, is_there: bool) -> GuardError:
        got = "another in its place" if is_there else "none"
        return GuardError(step, f"function {name!r}", f"expected it unchanged, got {got}", self.remedy)


def _find_caller() -> FrameType:
    """What called TVM, by which an instrument was called: none of the code in between."""
    frame = sys._getframe(2)
    while frame.f_back and _stands_between(frame):
        frame = frame.f_back
    return frame


def _stands_between(frame: FrameType) -> bool:
    """Whether it is an instrument's, or of the calls from and to C++, which classic TVM has in Python."""
    file = frame.f_code.co_filename
    return frame.f_code.co_name == "run_before_pass" or file.endswith("instrument.py") or "/_ffi/" in file


def _follow(functions: Functions, now: Mapping[Any, Any]) -> Functions:
    """What a pass is not to touch, once a pass that it ran has made ``now`` of some of them, or nothing.

    What a maker made is the outer pass's own: a pass that has something partitioned may give a region back.
    """
    followed = {name: now.get(function, function) for name, function in functions.items()}
    return {name: function for name, function in followed.items() if function is not None}
