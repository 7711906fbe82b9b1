"""What TVM keeps of a run's memory for runs to come.

Its pool gives a piece only to who asks for one of the very same size.  So a network of open sizes whose
calls get longer, as one that writes text word by word, left a piece of each length in the pool, for ever.
"""

from __future__ import annotations

import threading
from math import prod
from typing import Any

import tvm_ffi

from convoy.deploy.forks import Turn

LENGTHS = 32
"""Different sizes of calls of which memory is kept, at most."""
ELEMENTS = 16 << 20
"""What the inputs and outputs of these have together, at most; those of one call may have more."""


class Pool:
    """Looks after the pool for the calls of one library, of several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Any, int] = {}
        """Elements of inputs and outputs, by their sizes."""
        self._empty = tvm_ffi.get_global_func("vm.builtin.memory_manager.clear", allow_missing=True)

    def note(self, shapes: tuple[Any, ...], turn: Turn) -> None:
        """Give memory back where that of too many shapes is kept, after a call of these inputs and outputs.

        What other calls have in use, and the answer, stay as they are.
        """
        if shapes in self._kept or self._empty is None:  # most calls, so no lock
            return
        with turn, self._lock:
            taken = sum(map(prod, shapes))
            if len(self._kept) >= LENGTHS or (self._kept and sum(self._kept.values()) + taken > ELEMENTS):
                self._kept.clear()
                self._empty()
            self._kept[shapes] = taken
