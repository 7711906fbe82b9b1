"""What TVM keeps of a run's memory for runs to come.

Its pool gives a piece only to who asks for one of the very same size.  So a network of open sizes whose
calls get longer, as one that writes text word by word, left a piece of each length in the pool, for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from math import prod
from typing import Any

import tvm_ffi

from convoy.deploy.tensors import flatten

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

    def note(self, inputs: Sequence[Any], answer: Any) -> None:
        """After a call: where memory of too many sizes is kept, give it back.

        What other calls have in use, and the answer, stay as they are.
        """
        made = (value for value in flatten(answer) if isinstance(value, tvm_ffi.Tensor))
        sizes = tuple(tensor.shape for tensor in (*inputs, *made))
        with self._lock:
            if sizes in self._kept or self._empty is None:
                return
            taken = sum(map(prod, sizes))
            if len(self._kept) >= LENGTHS or (self._kept and sum(self._kept.values()) + taken > ELEMENTS):
                self._kept.clear()
                self._empty()
            self._kept[sizes] = taken
