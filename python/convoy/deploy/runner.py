"""Run an exported library on NumPy arrays with TVM's runtime and nothing else.

No compiler, no headers and none of Convoy's compile-time modules are needed, and TVM's compiler is not
imported: see ``docs/running.md``.
"""

from __future__ import annotations

import importlib
import os
import struct
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.deploy.runtime import load_runtime
from convoy.errors import ModelError
from convoy.installed import require

require("relax")

import tvm_ffi  # noqa: E402  a classic TVM has none: the check comes first

_CPU, _POOLED = 1, 2
"""DLPack's number of the CPU, and TVM's of the allocator that keeps memory between runs."""
_ALIGNMENT = 64
"""Bytes; TVM's own kernels expect their tensors so."""
_ELF_HEADER = struct.Struct("=40sQ10xHH2x")
"""The header of a 64-bit file: where its table of sections begins, a section's size in it, their number."""


class _Machine(threading.local):
    """A virtual machine and the arguments bound to it, each thread's own.

    TVM's machines hold the registers of the call that runs, so two threads in one of them break each other.
    """

    def __init__(self, module: Any) -> None:
        self.main = _initialize(module)["main"]
        self.arguments: list[Any] = []


def _initialize(module: Any) -> Any:
    """A virtual machine for ``module`` with TVM's defaults."""
    try:
        return _start(module)
    except RuntimeError:
        if "tvm" in sys.modules:
            raise
        importlib.import_module("tvm")  # a few ops, such as NonZero, call functions it has in Python only
        return _start(module)


def _start(module: Any) -> Any:
    machine = module["vm_load_executable"]()
    machine["vm_initialization"](_CPU, 0, _POOLED)
    return machine


class Runner:
    """A compiled model, ready to be called, by several threads at once if need be.

    Parameters
    ----------
    library : Any
        The file ``export_library`` wrote, or a ``tvm.relax.VMExecutable``.

    Raises
    ------
    ModelError
        If the file is not a library TVM can load.
    """

    def __init__(self, library: Any) -> None:
        if not isinstance(library, str | Path) and not hasattr(library, "jit"):
            raise ModelError(
                "run",
                "library",
                f"expected a file, or what TVM compiled, got an object of type {type(library).__name__}",
                "pass the path export_library wrote to",
            )
        module = _load(library) if isinstance(library, (str, Path)) else library.jit()
        try:
            self._machine = _Machine(module)
        except (AttributeError, RuntimeError, ValueError) as error:
            raise ModelError(
                "run",
                str(library),
                f"expected a library exported from tvm.relax, got {_first_line(error)}",
                "make one with convoy compile",
            ) from error

    def bind(self, inputs: Sequence[NDArray[Any]]) -> None:
        """Keep ``inputs``, in the model's order, as the arguments of this thread's calls to come.

        They are copied: any strides, alignment and byte order will do.

        Raises
        ------
        ModelError
            If they are no NumPy arrays, or TVM has no tensors of an input's type.
        """
        if not isinstance(inputs, Sequence):
            raise ModelError(
                "run",
                "inputs",
                f"expected a sequence of NumPy arrays, got an object of type {type(inputs).__name__}",
                "write [array], in the model's order",
            )
        self._machine.arguments = [_tensor(i, x) for i, x in enumerate(inputs)]

    def call(self) -> Any:
        """Run once on the bound inputs; TVM's own value, without a copy.

        Raises
        ------
        ModelError
            If an input has the wrong shape, type or number, or memory runs out.
        """
        try:
            return self._machine.main(*self._machine.arguments)
        except MemoryError as error:
            raise ModelError(
                "run", "main", f"expected enough memory for a run, got {_first_line(error)}", "free some"
            ) from error
        except (RuntimeError, ValueError, TypeError) as error:
            raise ModelError(
                "run",
                "main",
                f"expected inputs the model takes, got {self._described()}: {_first_line(error)}",
                "give every input of the model, in order, in its shape and type",
            ) from error

    def run(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        """One call: arrays in the model's order in, arrays out.

        Raises
        ------
        ModelError
            As ``call``.
        """
        self.bind(inputs)
        return arrays(self.call())

    def _described(self) -> str:
        return ", ".join(f"{x.dtype} {list(x.shape)}" for x in self._machine.arguments) or "no inputs"


def _tensor(index: int, array: NDArray[Any]) -> Any:
    if not isinstance(array, np.ndarray | np.generic):
        raise ModelError(
            "run",
            f"input {index}",
            f"expected a NumPy array, got an object of type {type(array).__name__}",
            "convert it, by numpy.asarray or its own method",
        )
    try:
        if array.dtype.kind == "c":
            raise TypeError("TVM 0.27 aborts where it would say that it has no complex numbers")
        return tvm_ffi.from_dlpack(_aligned_copy(array))
    except (BufferError, TypeError, ValueError) as error:
        raise ModelError(
            "run",
            f"input {index}",
            f"expected an array of real numbers, got dtype {array.dtype}",
            "give every input of the model, in order, in its shape and type",
        ) from error


def _aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in native byte order, dense, at an address TVM takes."""
    dtype = array.dtype.newbyteorder("=")
    memory = np.empty(array.nbytes + _ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % _ALIGNMENT
    copy: NDArray[Any] = memory[start : start + array.nbytes].view(dtype).reshape(array.shape)
    copy[...] = array
    return copy


def arrays(value: Any) -> list[NDArray[Any]]:
    """The tensors in a virtual machine's answer (one, or nested tuples of them), flattened."""
    if isinstance(value, tvm_ffi.Tensor):
        return [np.from_dlpack(value).copy()]  # writable; TVM's memory returns to its pool
    return [array for item in value for array in arrays(item)]


def _load(library: str | Path) -> Any:
    path = Path(library)
    if not os.path.isfile(path):  # Path's own raises for a name longer than any file's
        found = "a folder" if os.path.isdir(path) else "no such file"
        raise ModelError("run", str(path), f"expected a library, got {found}", "check the path")
    if path.suffix != ".so":
        raise ModelError(
            "run",
            str(path),
            f"expected a library, whose name ends in .so, got {path.name}",
            "make one of a model with convoy compile",
        )
    _check_whole(path)
    try:
        load_runtime()
        return tvm_ffi.load_module(str(path.resolve()), keep_module_alive=False)
    except Exception as error:
        # the loader's error type depends on the file's suffix
        raise ModelError(
            "run",
            str(path),
            f"expected a library exported from tvm.relax, got {_first_line(error)}",
            "make one with convoy compile",
        ) from error


def _check_whole(path: Path) -> None:
    """Refuse a library that was cut short on its way here: to load it would end the process (SIGBUS).

    An ELF file's table of sections is its last part.
    """
    header = b""
    with suppress(OSError), path.open("rb") as file:
        header = file.read(_ELF_HEADER.size)
    if len(header) < _ELF_HEADER.size or not header.startswith(b"\x7fELF\x02"):
        return  # the loader says what it is
    _, table, section, sections = _ELF_HEADER.unpack(header)
    expected, found = table + section * sections, path.stat().st_size
    if found < expected:
        raise ModelError(
            "run", str(path), f"expected a library of {expected} bytes, got {found}", "copy it here again"
        )


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def load(library: str | Path | Any) -> Runner:
    """A ``Runner`` of a library, or of what was compiled in this process.

    Raises
    ------
    ModelError
        As ``Runner``.
    """
    return Runner(library)
