"""Constant expressions, evaluated in NumPy.

Arithmetic is done in float64 and rounded once, when the value is written back to the module:
``gamma / sqrt(var + eps)`` loses nothing on its way into a weight. Moves of data (reshape,
transpose, …) keep the dtype and are views, so a 400 MB weight is neither widened nor copied
before it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from convoy.fold.node import Node, Value
from convoy.ops.table import OF, of_cost

Array: TypeAlias = NDArray[Any]
FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True, eq=False)
class Const:
    """An array and the dtype the module gives it (the array may be wider)."""

    dtype: str
    array: Array
    source: Value = None
    """The literal it is, if it is one: written back as it came."""

    @cached_property
    def wide(self) -> NDArray[np.float64]:
        """The value in float64."""
        return np.asarray(self.array, dtype=np.float64)


Lookup: TypeAlias = Callable[[Value], Const | None]
"""Gives the constant a value is, None if it is none."""


def evaluate(node: Node, lookup: Lookup) -> Const | None:
    """The constant a call computes, None if it is none or its op is not in the table."""
    if node.name in _MOVES:
        source = lookup(node.args[0])
        if source is None:
            return None
        moved = _MOVES[node.name](source.array, node)
        return None if moved is None else Const(source.dtype, moved)
    if node.name in _ARITHMETIC:
        sources = [lookup(argument) for argument in node.args]
        found = [s for s in sources if s is not None and s.dtype in FLOATS]
        if len(found) != len(sources):
            return None
        with np.errstate(all="ignore"):
            return Const(found[0].dtype, np.asarray(_ARITHMETIC[node.name](*(s.wide for s in found))))
    return None


def multiply_into(memory: Array, array: Array, factor: NDArray[np.float64]) -> None:
    """memory = array · factor, multiplied in float64 and rounded once: 100 MB read and written once."""
    with np.errstate(over="ignore"):
        if factor.size == 1 and factor == 1.0:
            np.copyto(memory, array, casting="same_kind")
        else:
            np.multiply(array, factor, out=memory, dtype=np.float64, casting="same_kind")


def _static(node: Node) -> tuple[int, ...] | None:
    dims = [size for size in node.shape or (None,) if size is not None]
    return tuple(dims) if node.shape is not None and len(dims) == len(node.shape) else None


def _reshape(array: Array, node: Node) -> Array | None:
    shape = _static(node)
    return None if shape is None else array.reshape(shape)


def _broadcast(array: Array, node: Node) -> Array | None:
    shape = _static(node)
    return None if shape is None else np.broadcast_to(array, shape)


def _transpose(array: Array, node: Node) -> Array:
    axes: Sequence[int] | None = node.attrs.axes
    moved: Array = array.transpose(None if axes is None else [int(a) for a in axes])
    return moved


def _layout_transform(array: Array, node: Node) -> Array | None:
    if not hasattr(node.attrs, "src_layout"):  # that of Relax maps indices
        return None
    source, target = str(node.attrs.src_layout), str(node.attrs.dst_layout)
    if sorted(source) != sorted(target) or not (source + target).isupper():
        return None
    moved: Array = array.transpose([source.index(letter) for letter in target])
    return moved


_MOVES: dict[str, Callable[[Array, Node], Array | None]] = {
    **dict.fromkeys(of_cost(OF, "in place"), _reshape),
    **dict.fromkeys(OF["transpose"].names, _transpose),
    "broadcast_to": _broadcast,
    "layout_transform": _layout_transform,
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

EVALUATED = (*_MOVES, *_ARITHMETIC)
"""The ops of ``evaluate``."""
