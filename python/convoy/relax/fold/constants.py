"""Constant expressions, evaluated in NumPy.

Arithmetic is done in float64 and rounded once, when the value is written back to the module:
``gamma / sqrt(var + eps)`` loses nothing on its way into a weight. Moves of data (reshape,
permute_dims, …) keep the dtype and are views, so a 400 MB weight is neither widened nor copied
before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax
from tvm.ir import Call, Expr, GenericConst, Op

Array = NDArray[Any]
FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class Const:
    """An array and the dtype the module gives it (the array may be wider)."""

    dtype: str
    array: Array
    source: GenericConst | None = None
    """The literal it is, if it is one: written back as it came."""

    @staticmethod
    def literal(value: GenericConst) -> Const | None:
        """A tensor literal; None for other constants."""
        if not isinstance(value.ty, relax.TensorType):
            return None
        return Const(str(value.ty.dtype), _numpy(value), value)

    @cached_property
    def wide(self) -> NDArray[np.float64]:
        """The value in float64."""
        return np.asarray(self.array, dtype=np.float64)

    def expr(self) -> GenericConst:
        """The literal to write into the module."""
        if self.source is not None:
            return self.source
        return literal(self.array, self.dtype)


def literal(array: Array, dtype: str) -> GenericConst:
    """A tensor literal of ``dtype``, rounded once."""
    if dtype not in FLOATS:
        return relax.const(np.ascontiguousarray(array).reshape(array.shape), dtype)
    return product(array, np.float64(1.0).reshape(()), dtype)


def product(array: Array, factor: NDArray[np.float64], dtype: str) -> GenericConst:
    """The literal array · factor, multiplied in float64 straight into the module's memory.

    A weight of 100 MB is read once and written once.
    """
    tensor = tvm.runtime.empty(array.shape, dtype)
    memory = np.from_dlpack(tensor)
    if not memory.flags.writeable:  # NumPy before 2.1
        memory = np.empty(array.shape, dtype)
    with np.errstate(over="ignore"):
        if factor.size == 1 and factor == 1.0:
            np.copyto(memory, array, casting="same_kind")
        else:
            np.multiply(array, factor, out=memory, dtype=np.float64, casting="same_kind")
    return relax.const(tensor if memory.base is not None else tvm.runtime.tensor(memory))


def evaluate(value: Expr, lookup: Callable[[Expr], Const | None]) -> Const | None:
    """The constant a bound value computes, None if it is none or its op is not in the table.

    Parameters
    ----------
    value : a literal, a variable or a call
    lookup : gives the constant an argument is
    """
    if not isinstance(value, Call):
        return lookup(value)
    if not isinstance(value.op, Op):
        return None
    name = str(value.op.name).removeprefix("relax.")
    if name in _MOVES:
        source = lookup(value.args[0])
        if source is None:
            return None
        moved = _MOVES[name](source.array, value)
        return None if moved is None else Const(source.dtype, moved)
    if name in _ARITHMETIC:
        sources = [lookup(argument) for argument in value.args]
        found = [s for s in sources if s is not None and s.dtype in FLOATS]
        if len(found) != len(sources):
            return None
        with np.errstate(all="ignore"):
            return Const(found[0].dtype, np.asarray(_ARITHMETIC[name](*(s.wide for s in found))))
    return None


def _numpy(value: GenericConst) -> Array:
    try:
        view: Array = np.from_dlpack(value.value)
        return view
    except (BufferError, TypeError, RuntimeError, AttributeError):
        return np.asarray(value.value.numpy())


def _shape(value: Expr) -> tuple[int, ...] | None:
    """A type's static shape."""
    shape = value.ty.shape if isinstance(value.ty, relax.TensorType) else None
    if not isinstance(shape, relax.ShapeExpr):
        return None
    dims = [getattr(dim, "value", None) for dim in shape.values]
    return None if None in dims else tuple(int(d) for d in dims if d is not None)


def _reshape(array: Array, call: Call) -> Array | None:
    shape = _shape(call)
    return None if shape is None else array.reshape(shape)


def _broadcast(array: Array, call: Call) -> Array | None:
    shape = _shape(call)
    return None if shape is None else np.broadcast_to(array, shape)


def _permute(array: Array, call: Call) -> Array:
    axes: Sequence[int] | None = call.attrs.axes
    moved: Array = array.transpose(None if axes is None else [int(a) for a in axes])
    return moved


_MOVES: dict[str, Callable[[Array, Call], Array | None]] = {
    "reshape": _reshape,
    "expand_dims": _reshape,
    "squeeze": _reshape,
    "flatten": _reshape,
    "broadcast_to": _broadcast,
    "permute_dims": _permute,
}

_ARITHMETIC: dict[str, Callable[..., Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "power": np.power,
    "negative": np.negative,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
}
