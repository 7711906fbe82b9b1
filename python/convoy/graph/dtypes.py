"""The types an element of a tensor can have, and the cells they are computed in.

Kernels broadcast one cell of 32 bits at a time against one vector of weights, whatever its type: a float32,
two bfloat16 or four bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

DType = Literal["float32", "bfloat16", "int32", "int8", "uint8"]

BYTES: Mapping[DType, int] = {"float32": 4, "bfloat16": 2, "int32": 4, "int8": 1, "uint8": 1}
"""The size of an element."""

ARRAYS: Mapping[DType, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "bfloat16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
}
"""What NumPy holds an element in: of bfloat16, which it does not know, the bits."""

CELL_BYTES = 4


def cell_elements(dtype: DType) -> int:
    """Elements of a cell: 1, 2 or 4."""
    return CELL_BYTES // BYTES[dtype]


QUANTISED: tuple[DType, ...] = ("uint8", "int8")
"""What ``Quantize`` makes."""


MOVABLE: frozenset[DType] = frozenset({"float32", *QUANTISED})
"""What kernels that move elements know."""


def range_of(dtype: DType) -> tuple[int, int]:
    """The least and the largest number of an integer type."""
    info = np.iinfo(ARRAYS[dtype])
    return int(info.min), int(info.max)


def element_type(name: str) -> DType | None:
    """The type of this name; None for one that no tensor of a graph has."""
    return next((dtype for dtype in BYTES if dtype == name), None)


def round_bfloat16(array: NDArray[np.float32]) -> NDArray[np.uint16]:
    """The bits of float32 values in bfloat16, rounded to nearest even; a NaN stays one."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    found: NDArray[np.uint16] = np.where(np.isnan(array), quiet, rounded).astype(np.uint16)
    return found


def widen_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values of such bits."""
    found: NDArray[np.float32] = (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return found


def dtype_of(array: NDArray[Any]) -> DType | None:
    """The type of the elements of a constant; None if no tensor has it.

    uint16 is none: whether it holds bfloat16 only who made it knows.
    """
    found: Mapping[np.dtype[Any], DType] = {ARRAYS[d]: d for d in ARRAYS if d != "bfloat16"}
    return found.get(array.dtype)
