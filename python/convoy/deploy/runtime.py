"""TVM's runtime in this process, without TVM's compiler.

``import tvm`` loads a compiler of a quarter of a gigabyte and hundreds of Python modules.  An exported
library calls none of that: the few megabytes of ``libtvm_runtime`` and the ``tvm_ffi`` package run it.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

from convoy.installed import find_tvm

_SPINS = "TVM_THREAD_POOL_SPIN_COUNT"
_FEW_SPINS = 1000


def let_workers_sleep() -> None:
    """Let workers of TVM's pool sleep after half a millisecond, unless a variable says else.

    One that waits yields 300,000 times before it sleeps, or looks whether it is to end.  Beside processes
    that compute, each of these is a time slice, and a process ends minutes late.
    """
    os.environ.setdefault(_SPINS, str(_FEW_SPINS))  # read when the first pool begins


def load_runtime() -> None:
    """Load the runtime of a modern TVM, unless TVM is imported already.

    Raises
    ------
    RuntimeError, OSError
        If its runtime library is missing or does not load.
    """
    if "tvm" in sys.modules:
        return
    from tvm_ffi.libinfo import load_lib_ctypes  # not sooner: see keep_torch_out

    folders = _library_folders()
    load_lib_ctypes("tvm", "tvm_runtime", "RTLD_GLOBAL", folders)
    with suppress(RuntimeError, OSError):  # sort and topk; a TVM may be built without
        load_lib_ctypes("tvm", "tvm_runtime_extra", "RTLD_LOCAL", folders)


def keep_torch_out() -> None:
    """Keep PyTorch out of a process that is Convoy's own.

    ``tvm_ffi`` imports it where it is installed, for its tensors, which takes half a gigabyte and a second.
    """
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


def _library_folders() -> list[Path]:
    """Where TVM looks for its libraries: the variable, a wheel's folder, those of a source tree."""
    package = find_tvm()
    assert package is not None, "required by who imports tvm_ffi"
    chosen = os.environ.get("TVM_LIBRARY_PATH")
    source = package.parents[1]
    return [
        *([Path(chosen)] if chosen else []),
        package / "lib",
        source / "build" / "lib",
        source / "lib",
    ]
