"""Compiling in several threads at once: what TVM notes of the work of one is kept from the others."""

from __future__ import annotations

from tvm.te import tag

from convoy.offload.per_thread import with_own_attribute


def keep_threads_apart() -> None:
    """Make the tag of the op that is written each thread's own; a second call changes nothing."""
    if type(tag.TagScope) is type:
        tag.TagScope = with_own_attribute(tag.TagScope, "_current")
