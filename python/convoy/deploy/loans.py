"""Outputs in TVM's own memory: handed out without a copy, and given back to TVM in a later call.

Memory goes back to TVM's pool, which has a lock.  A thread that gave it back whenever an array dies could
hold the lock while another forks, and the child would wait for it forever (``forks.py``).  So an array that
dies leaves its tensor in a queue, and calls empty that: a fork waits for those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST_BYTES = 1 << 16
"""A smaller output is copied: that is as fast."""

_returned: deque[Any] = deque()
"""Tensors whose arrays died.  Both ends may be used by any thread, and as Python collects garbage."""


class _Loan:
    """Lends a tensor's memory to NumPy, whose arrays keep this alive."""

    def __init__(self, tensor: Any, dtype: np.dtype[Any]) -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "shape": tensor.shape,
            "typestr": _code_of(dtype),
            "data": (tensor.data_ptr(), False),
        }

    def __del__(self, give_back: Callable[[Any], None] = _returned.append) -> None:
        give_back(self._tensor)


@cache
def _code_of(dtype: np.dtype[Any]) -> str:
    """What NumPy calls it; asking takes as long as all else."""
    code: str = dtype.str
    return code


def lend_out(tensor: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """A writable array in the memory of ``tensor``, which nothing else may have."""
    return np.asarray(_Loan(tensor, dtype))


def take_back() -> None:
    """Give TVM the memory of arrays that died; to be called in a turn."""
    while _returned:
        try:
            _returned.popleft()
        except IndexError:  # another thread took the last one
            return
