"""Compiling in several threads at once: what TVM notes of the work of one is kept from the others."""

from __future__ import annotations

from tvm import relax
from tvm.te import tag

from convoy.offload.per_thread import PerThreadList, with_own_attribute


def keep_threads_apart() -> None:
    """Make TVM's stack of block builders, and the tag of the op that is written, each thread's own.

    A second call changes nothing.
    """
    if isinstance(relax.BlockBuilder._stack, PerThreadList):
        return
    relax.BlockBuilder._stack = PerThreadList(relax.BlockBuilder._stack)
    tag.TagScope = with_own_attribute(tag.TagScope, "_current")
