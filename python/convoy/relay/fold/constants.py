"""Literals of Relay, read and written."""

from __future__ import annotations

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relay

from convoy.fold.constants import FLOATS, Array, Const, multiply_into


def read_literal(value: relay.Constant) -> Const:
    """A literal."""
    return Const(str(value.data.dtype), value.data.numpy(), value)


def write_constant(constant: Const) -> relay.Constant:
    """The literal to write into the module."""
    return constant.source if constant.source is not None else literal(constant.array, constant.dtype)


def literal(array: Array, dtype: str) -> relay.Constant:
    """A literal of ``dtype``, rounded once."""
    if dtype not in FLOATS:
        return relay.Constant(tvm.nd.array(np.ascontiguousarray(array).reshape(array.shape)))
    return product(array, np.array(1.0), dtype)


def product(array: Array, factor: NDArray[np.float64], dtype: str) -> relay.Constant:
    """The literal array · factor, multiplied in float64 and rounded once."""
    memory = np.empty(array.shape, dtype)
    multiply_into(memory, array, factor)
    return relay.Constant(tvm.nd.array(memory))
