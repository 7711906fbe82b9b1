"""Run an exported library on NumPy arrays with TVM's runtime and nothing else.

No compiler, no headers and none of Convoy's compile-time modules are needed: the same few
lines work in any process that has TVM.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm.runtime.vm
from numpy.typing import NDArray

from convoy.errors import ModelError


class _Machine(threading.local):
    """A virtual machine and the arguments bound to it, of each thread its own: TVM's machines hold the
    registers of the call that runs, so two threads in one of them break each other."""

    def __init__(self, module: Any) -> None:
        self.main = tvm.runtime.vm.VirtualMachine(module, tvm.cpu())["main"]
        self.arguments: list[Any] = []


class Runner:
    """A compiled model, ready to be called, by several threads at once if need be.

    Parameters
    ----------
    library : the file ``export_library`` wrote, or a ``tvm.relax.VMExecutable``
    Raises
    ------
    ModelError  if the file is not a library TVM can load
    """

    def __init__(self, library: Any) -> None:
        module = _load(library) if isinstance(library, (str, Path)) else library
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
        ModelError  if TVM has no tensors of an input's type
        """
        self._machine.arguments = [_tensor(i, x) for i, x in enumerate(inputs)]

    def call(self) -> Any:
        """Run once on the bound inputs; TVM's own value, without a copy.

        Raises
        ------
        ModelError  if an input has the wrong shape, type or number, or memory runs out
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
        ModelError  as ``call``
        """
        self.bind(inputs)
        return arrays(self.call())

    def _described(self) -> str:
        return ", ".join(f"{x.dtype} {list(x.shape)}" for x in self._machine.arguments) or "no inputs"


def _tensor(index: int, array: NDArray[Any]) -> Any:
    try:
        # order="C" and not ascontiguousarray, which gives a scalar an axis
        return tvm.runtime.tensor(np.asarray(array, array.dtype.newbyteorder("="), order="C"))
    except (TypeError, ValueError, RuntimeError) as error:
        raise ModelError(
            "run",
            f"input {index}",
            f"expected an array of numbers, got dtype {array.dtype}",
            "give every input of the model, in order, in its shape and type",
        ) from error


def arrays(value: Any) -> list[NDArray[Any]]:
    """The tensors in a virtual machine's answer (one, or nested tuples of them), flattened."""
    if isinstance(value, tvm.runtime.Tensor):
        return [value.numpy()]
    return [array for item in value for array in arrays(item)]


def _load(library: str | Path) -> Any:
    path = Path(library)
    if not path.is_file():
        raise ModelError("run", str(path), "expected a library, got no such file", "check the path")
    try:
        return tvm.runtime.load_module(str(path.resolve()))
    except Exception as error:
        # the loader's error type depends on the file's suffix
        raise ModelError(
            "run",
            str(path),
            f"expected a library exported from tvm.relax, got {_first_line(error)}",
            "make one with convoy compile",
        ) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
