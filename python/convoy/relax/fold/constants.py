"""Tensor literals of Relax, read and written."""

from __future__ import annotations

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import GenericConst

from convoy.fold.constants import FLOATS, Array, Const, multiply_into
from convoy.relax.dataflow import read_array


def read_literal(value: GenericConst) -> Const | None:
    """A tensor literal; None for other constants."""
    if not isinstance(value.ty, relax.TensorType):
        return None
    return Const(str(value.ty.dtype), read_array(value), value)


def write_constant(constant: Const) -> GenericConst:
    """The literal to write into the module."""
    return constant.source if constant.source is not None else literal(constant.array, constant.dtype)


def literal(array: Array, dtype: str) -> GenericConst:
    """A tensor literal of ``dtype``, rounded once."""
    if dtype not in FLOATS:
        return relax.const(np.ascontiguousarray(array).reshape(array.shape), dtype)
    return product(array, np.array(1.0), dtype)


def product(array: Array, factor: NDArray[np.float64], dtype: str) -> GenericConst:
    """The literal array · factor, multiplied in float64 straight into the module's memory."""
    tensor = tvm.runtime.empty(array.shape, dtype)
    memory = np.from_dlpack(tensor)
    if not memory.flags.writeable:  # NumPy before 2.1
        memory = np.empty(array.shape, dtype)
    multiply_into(memory, array, factor)
    return relax.const(tensor if memory.base is not None else tvm.runtime.tensor(memory))
