"""Arrays as they come, to TVM's tensors and back: where it lies if the layout allows, else copied.

NumPy has bfloat16 and floats of 8 bits only by the package ``ml_dtypes``, and does not lend such arrays by
DLPack.  They go through as their bits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Container
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from convoy.deploy.description import OF_TVM
from convoy.deploy.dtypes import DLPACK, numpy_dtype
from convoy.deploy.loans import LEAST_BYTES, lend_out
from convoy.errors import ModelError
from convoy.installed import require

require("relax")

import tvm_ffi  # noqa: E402  a classic TVM has none: the check comes first

BUILT_IN = 1
"""What NumPy says of its own types: asking for their names takes as long as a small network."""
OUTSIDE = "expected indices within the sizes they count, got one outside"
"""What a library ends a call with that would read or write elsewhere."""
ZERO = "expected whole numbers to divide by that are not 0, got 0"
"""What it ends a call with that would end the process."""
UNLIKE = "expected a shape of as many elements as there are, got another"
"""What it ends a call with that would copy more or fewer."""
FAULT = 1 << 40
"""What it counts an axis, scale or length for that does not fit, where it expects 0; no size is it."""
NO_ROOM = -FAULT
"""What it says, where it expects 0, of sizes of which a tensor has more elements than memory has places."""
TOO_SMALL = "expected sizes that the network takes, got some of which "
"""How a library begins what it ends a call with where a size is smaller than an op needs."""


class Lending(Protocol):
    """What lends its memory by DLPack: NumPy's arrays, PyTorch's tensors and many more."""

    def __dlpack__(self) -> Any: ...

    def __dlpack_device__(self) -> tuple[int, int]: ...


def copied(name: str, array: Lending | NDArray[Any]) -> Any:
    """A tensor in memory of its own: any strides, alignment and byte order will do.

    Raises
    ------
    ModelError
        If it is no array, or TVM has no tensors of its type.
    """
    if not isinstance(array, np.ndarray | np.generic):
        array = _as_numpy(name, array)
    try:
        if array.dtype.kind == "c":
            raise TypeError("TVM 0.27 aborts where it would say that it has no complex numbers")
        if array.dtype.hasobject:
            raise TypeError("memory that is not initialised holds no objects to be replaced")
        if array.dtype.isbuiltin != BUILT_IN and array.dtype.name in DLPACK:
            bits = array.view(f"uint{8 * array.itemsize}")
            return tvm_ffi.from_dlpack(_Bits(_aligned_copy(bits), DLPACK[array.dtype.name]))
        return tvm_ffi.from_dlpack(_aligned_copy(array))
    except (BufferError, TypeError, ValueError) as error:
        raise ModelError(
            "run",
            name,
            f"expected an array of real numbers, got dtype {array.dtype}",
            "give every input of the model, in order, in its shape and type",
        ) from error
    except MemoryError as error:  # a view may have more elements than there is memory
        shape = "x".join(map(str, array.shape))
        raise ModelError(
            "run", name, f"expected memory for a copy of {shape} numbers, got none", "give fewer"
        ) from error


def lent(name: str, array: Lending | NDArray[Any], alignment: int) -> Any:
    """A tensor in the memory of ``array``; a copy, if that is strided, misaligned or may not be lent.

    Raises
    ------
    ModelError
        As ``copied``.
    """
    if _may_be_lent(array):
        try:
            tensor = tvm_ffi.from_dlpack(array, require_contiguous=True)
            if tensor.data_ptr() % alignment == 0:
                return tensor
        except (BufferError, RuntimeError, TypeError, ValueError):
            pass  # read-only, strided, or of a type that DLPack or TVM has not
    return copied(name, array)


def _may_be_lent(array: Lending | NDArray[Any]) -> bool:
    """Is it worth asking?  What TVM raises would take as long as a small network."""
    if isinstance(array, np.ndarray):
        dtype = array.dtype
        whole = array.size > 0 and dtype.isnative and dtype.kind in "biuf" and array.flags.c_contiguous
        if type(array) is np.ndarray or not whole:
            return whole
    if isinstance(array, np.generic) or not hasattr(array, "__dlpack__"):
        return False
    try:
        on_cpu = array.__dlpack_device__()[0] == 1
    except (BufferError, RuntimeError, TypeError, ValueError):
        return False
    return on_cpu and not getattr(array, "requires_grad", False)


def arrays(value: Any, own: Container[int] = ()) -> list[NDArray[Any]]:
    """The tensors in a virtual machine's answer (one, or nested tuples of them), flattened; all writable.

    Parameters
    ----------
    own : Container[int]
        Places of those whose memory nothing else has: large ones are lent out, all others copied.
    """
    return [_array(tensor, i in own) for i, tensor in enumerate(flatten(value))]


def flatten(value: Any) -> list[Any]:
    """What an answer holds: tensors, and shapes and numbers where a network gives some."""
    if not isinstance(value, tvm_ffi.Array):
        return [value]
    items: list[Any] = value[:]  # one after the other they take eight times as long
    if not any(isinstance(item, tvm_ffi.Array) for item in items):
        return items
    return [inner for item in items for inner in flatten(item)]


def _array(tensor: Any, is_own: bool) -> NDArray[Any]:
    try:
        array = np.from_dlpack(tensor)
    except (BufferError, RuntimeError, TypeError):
        if str(tensor.dtype) not in DLPACK:  # asked last: it takes longer than all the rest
            raise
        return _from_bits(tensor)
    return lend_out(tensor, array.dtype) if is_own and array.nbytes >= LEAST_BYTES else array.copy()


class _Bits:
    """Lends the bits of a type that NumPy does not lend, as what they are."""

    TYPE_CODE_AT = 20
    """Where a ``DLManagedTensor`` has it: after a pointer, two int32, and the number of axes."""

    def __init__(self, bits: NDArray[Any], code: int) -> None:
        self.bits, self.code = bits, code

    def __dlpack__(self, **_: Any) -> Any:
        capsule = self.bits.__dlpack__()
        read = ctypes.pythonapi.PyCapsule_GetPointer
        read.restype, read.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        ctypes.c_uint8.from_address(read(capsule, b"dltensor") + self.TYPE_CODE_AT).value = self.code
        return capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.bits.__dlpack_device__()


def _from_bits(tensor: Any) -> NDArray[Any]:
    """A copy of a tensor whose type NumPy does not take by DLPack."""
    shape, dtype = tuple(map(int, tensor.shape)), numpy_dtype(str(tensor.dtype))
    copy = bytearray(ctypes.string_at(tensor.data_ptr(), dtype.itemsize * int(np.prod(shape))))
    found: NDArray[Any] = np.frombuffer(copy, dtype).reshape(shape)
    return found


def _as_numpy(name: str, array: Any) -> NDArray[Any]:
    """What lends its memory by DLPack, for NumPy; a tensor of PyTorch's, its gradient left out."""
    try:
        taken: NDArray[Any] = np.from_dlpack(array.detach() if hasattr(array, "detach") else array)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ModelError(
            "run",
            name,
            f"expected a NumPy array or a tensor in the CPU's memory, got an object of type "
            f"{type(array).__name__}",
            "convert it, by numpy.asarray or its own method",
        ) from error
    return taken


def _aligned_copy(array: NDArray[Any]) -> NDArray[Any]:
    """A copy in native byte order, dense, at an address TVM takes."""
    dtype = array.dtype.newbyteorder("=")
    if not array.size:  # NumPy's strides are 0 then, and TVM wants those of dense arrays
        sizes = [dtype.itemsize, *array.shape[:0:-1]]
        strides = np.multiply.accumulate(sizes)[: array.ndim][::-1]
        return np.lib.stride_tricks.as_strided(np.empty(1, dtype), array.shape, strides)
    memory = np.empty(array.nbytes + OF_TVM, np.uint8)
    start = -tvm_ffi.from_dlpack(memory).data_ptr() % OF_TVM
    copy: NDArray[Any] = np.ndarray(array.shape, dtype, memory, start)
    copy[...] = array
    return copy
