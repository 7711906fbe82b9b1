"""Call a compiled region from Python on NumPy arrays, without TVM, through cffi."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

import cffi
import numpy as np
from numpy.typing import NDArray

from convoy.errors import ConvoyError, ToolchainError
from convoy.graph.dtypes import ARRAYS
from convoy.graph.graph import OpenAxis
from convoy.graph.ops import Tensor
from convoy.graph.sizes import Symbol, bind
from convoy.text import c_name

Array = NDArray[Any]

OUT_OF_MEMORY, NESTED_CALL = 1, 2
"""As in ``convoy/region.h``."""


class Signature(Protocol):
    """How a region is called; ``backend.RegionCode`` has one."""

    @property
    def symbol(self) -> str: ...
    @property
    def inputs(self) -> Sequence[Tensor]: ...
    @property
    def outputs(self) -> Sequence[Tensor]: ...
    @property
    def batch(self) -> int | None: ...
    @property
    def open_axes(self) -> Sequence[OpenAxis]: ...


def batched_shape(tensor: Tensor, batch: int) -> tuple[int, ...]:
    """The shape a caller passes for ``tensor``, whose own shape is that of one image."""
    if batch == 1:
        return tensor.shape
    return (tensor.shape[0] * batch, *tensor.shape[1:])


def load_region(library: Path, code: Signature) -> Callable[..., list[Array]]:
    """The region of a shared library (of ``link_shared``) as a Python function.

    Parameters
    ----------
    library : Path
        Holds the function ``code.symbol`` and the runtime.
    code : Signature
        Names the function and the shapes of its tensors.

    Returns
    -------
    Callable[..., list[Array]]
        A function of one array per input: of the input's type and shape with the batch as axis 0,
        C-contiguous or not. It returns one new array per output. It releases the GIL and may be called
        from several threads. It raises ``ConvoyError`` for an array that does not fit and ``MemoryError``
        if the region's scratch memory cannot be had.

    Raises
    ------
    ToolchainError
        If the library cannot be loaded or lacks the function.
    """
    ffi = _interface(code.symbol, bool(code.open_axes))
    try:
        # a name without a folder would be looked for where the system keeps its libraries
        opened = ffi.dlopen(str(library.absolute()), ffi.RTLD_NOW | ffi.RTLD_LOCAL)
        address = getattr(opened, code.symbol)
    except (OSError, AttributeError) as problem:
        raise ToolchainError(
            "load",
            str(library),
            f"expected a library with the function {code.symbol}, got {problem}",
            "link it again with the region's objects, its weights and the runtime",
        ) from problem

    def run(*arrays: Array) -> list[Array]:
        sizes = _read_sizes(code, arrays)
        batch = _check(code, arrays, sizes)
        dense = [np.ascontiguousarray(array) for array in arrays]
        bound = [bind(tensor, sizes) for tensor in code.outputs]
        results = [np.empty(batched_shape(tensor, batch), ARRAYS[tensor.dtype]) for tensor in bound]
        if batch == 0:
            return results
        inputs = ffi.new("const void *[]", [_pointer(ffi, array) for array in dense])
        outputs = ffi.new("void *[]", [_pointer(ffi, array) for array in results])
        told = [ffi.new("int64_t[]", list(sizes.values()))] if code.open_axes else []
        status = address(inputs, outputs, batch, *told)
        if status == OUT_OF_MEMORY:
            raise MemoryError(f"run: {code.symbol}: expected memory for one image, got none; free some")
        if status == NESTED_CALL:
            raise ConvoyError(
                "run",
                code.symbol,
                "expected a call from outside, got one from within a region's run, which it would wait for",
                "call it when that run has returned",
            )
        if status != 0:
            raise ConvoyError("run", code.symbol, f"expected status 0, got {status}", "report it")
        return results

    run.library = opened  # type: ignore[attr-defined]  # keeps it loaded, and is the way to its settings
    return run


@lru_cache(maxsize=64)
def _interface(symbol: str, is_open: bool) -> Any:
    """The C declarations of a library whose region is ``symbol``, and is told sizes if it is open."""
    ffi = cffi.FFI()
    sizes = ", const int64_t *sizes" if is_open else ""
    ffi.cdef(
        f"""
        int {c_name(symbol)}(const void *const *inputs, void *const *outputs, int64_t images{sizes});
        int convoy_num_threads(void);
        void convoy_set_num_threads(int threads);
        extern double {symbol}_seconds[];
        """
    )
    return ffi


def read_seconds(function: Callable[..., list[Array]], code: Signature, steps: int) -> list[float]:
    """The least seconds each of the ``steps`` steps has taken so far, of a region emitted ``timed``.

    ``function`` is what ``load_region`` returned for ``code``; a step that never ran has 0.
    """
    times = getattr(function.library, f"{code.symbol}_seconds")  # type: ignore[attr-defined]
    return [times[i] for i in range(steps)]


def _pointer(ffi: Any, array: Array) -> Any:
    return ffi.cast("void *", array.ctypes.data)


def _read_sizes(code: Signature, arrays: Sequence[Array]) -> dict[Symbol, int]:
    """The sizes that are known at the call, in order; likely ones where an array has no such axis."""
    found = {}
    for at in code.open_axes:
        shape = getattr(arrays[at.input], "shape", ()) if at.input < len(arrays) else ()
        size = int(shape[at.axis]) // at.times if at.axis < len(shape) else at.symbol.hint
        found[at.symbol] = size
        if size < at.symbol.least:
            expected, got = f"at least {at.symbol.least * at.times} along axis {at.axis}", f"{list(shape)}"
            raise _misfit(code, code.inputs[at.input].name, expected, got)
    return found


def _check(code: Signature, arrays: Sequence[Array], sizes: Mapping[Symbol, int]) -> int:
    """The batch of ``arrays``, all of which fit ``code``."""
    if len(arrays) != len(code.inputs):
        raise _misfit(code, "arguments", f"{len(code.inputs)} arrays", str(len(arrays)))
    batch = code.batch
    for given, array in zip(code.inputs, arrays, strict=True):
        tensor = bind(given, sizes)
        if batch is None and isinstance(array, np.ndarray) and array.ndim > 0:
            batch = int(array.shape[0])
        expected = batched_shape(tensor, 1 if batch is None else batch)
        if (
            not isinstance(array, np.ndarray)
            or array.dtype != ARRAYS[tensor.dtype]
            or array.shape != expected
        ):
            shown = "any" if code.batch is None else "this"
            found = (
                f"{array.dtype} {list(array.shape)}"
                if isinstance(array, np.ndarray)
                else type(array).__name__
            )
            raise _misfit(code, tensor.name, f"{tensor.dtype} {list(expected)} ({shown} batch)", found)
    return 1 if batch is None else batch


def _misfit(code: Signature, what: str, expected: str, found: str) -> ConvoyError:
    return ConvoyError(
        "run", f"{code.symbol} {what}", f"expected {expected}, got {found}", "pass such an array"
    )
