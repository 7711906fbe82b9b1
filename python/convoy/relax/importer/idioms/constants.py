"""Arithmetic on constants, done in NumPy.

TVM's FoldConstant compiles each folded op with LLVM, tens of milliseconds apiece and seconds
for large weights; frontends leave mostly reshapes and transposes, which cost nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from convoy.relax.dataflow import numbers
from convoy.relax.importer.idioms.definitions import Array, Definitions, constant, static_shape

Evaluator = Callable[[Any, list[Array]], Array | None]

GROWTH = 1 << 20
"""A constant is not grown past this many elements: a broadcast stays where it is cheap."""

TILE = 256
"""Rows and columns transposed at a time: two tiles fit the second-level cache."""


def fold_constant(call: Any, defined: Definitions) -> Any:
    """op(constants)  =>  constant."""
    arguments = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else call.args
    arrays = []
    for argument in arguments:
        value = defined.value(argument)
        if isinstance(value, relax.ShapeExpr | relax.Tuple | tirx.IntImm | tirx.FloatImm):
            continue
        array = defined.constant(value)
        if array is None:
            return None
        arrays.append(array)
    shape = static_shape(call)
    if not arrays or shape is None:
        return None
    if np.prod(shape, dtype=np.int64) > max(GROWTH, sum(a.size for a in arrays)):
        return None
    op = str(call.op.name).removeprefix("relax.")
    # Inputs are finite weights; an overflow to inf here is what the op would give at run time.
    with np.errstate(all="ignore"):
        result = EVALUATORS[op](call, arrays)
    if result is None or list(result.shape) != shape:
        return None
    return constant(np.asarray(result).astype(str(call.ty.dtype), copy=False))


def _to_shape(call: Any, arrays: list[Array]) -> Array:
    return arrays[0].reshape(static_shape(call) or ())


def _broadcast(call: Any, arrays: list[Array]) -> Array:
    return np.asarray(np.broadcast_to(arrays[0], static_shape(call) or ()))


def _permute(call: Any, arrays: list[Array]) -> Array:
    axes = call.attrs.axes
    order = list(range(arrays[0].ndim))[::-1] if axes is None else [int(a) for a in axes]
    if order == [1, 0]:
        return _transpose(arrays[0])
    return np.asarray(np.transpose(arrays[0], order))


def _transpose(matrix: Array) -> Array:
    """By tiles: 0.3 s instead of 2.3 s for VGG's 25088x4096 (2 cores, 2026-11-21)."""
    rows, columns = matrix.shape
    result = np.empty((columns, rows), matrix.dtype)
    for i in range(0, rows, TILE):
        for j in range(0, columns, TILE):
            result[j : j + TILE, i : i + TILE] = matrix[i : i + TILE, j : j + TILE].T
    return result


def _take(call: Any, arrays: list[Array]) -> Array | None:
    data, indices = arrays
    axis = call.attrs.axis
    size = data.size if axis is None else data.shape[int(axis)]
    signed = indices.astype(np.int64)
    if np.any(signed < -size) or np.any(signed >= size):
        return None
    return np.asarray(np.take(data, signed, None if axis is None else int(axis)))


def _concat(call: Any, arrays: list[Array]) -> Array:
    return np.concatenate(arrays, int(call.attrs.axis or 0))


def _stack(call: Any, arrays: list[Array]) -> Array:
    return np.asarray(np.stack(arrays, int(call.attrs.axis or 0)))


def _slice(call: Any, arrays: list[Array]) -> Array | None:
    given = [numbers(part) for part in call.args[1:] if isinstance(part, relax.Tuple)]
    parts = [part for part in given if part is not None]
    if len(parts) < max(3, len(given)):  # a row of a table at an open place is one of a known shape, too
        return None
    axes, begins, ends = parts[:3]
    steps = parts[3] if len(parts) > 3 else [1] * len(axes)
    if min(steps) < 1:
        return None
    index = [slice(None)] * arrays[0].ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        index[axis] = slice(begin, end, step)
    return np.asarray(arrays[0][tuple(index)])


def _scatter_elements(call: Any, arrays: list[Array]) -> Array | None:
    data, indices, updates = arrays
    if str(call.attrs.reduction) != "update":
        return None
    result: Array = data.copy()
    places: list[Array] = list(np.indices(indices.shape))  # of fewer rows than the data have, too
    places[int(call.attrs.axis)] = indices
    result[tuple(places)] = updates
    return result


def _elementwise(operation: Callable[..., Any]) -> Evaluator:
    return lambda call, arrays: np.asarray(operation(*arrays))


def _divide(call: Any, arrays: list[Array]) -> Array | None:
    if arrays[0].dtype.kind != "f":  # rounding of integer division differs between frontends
        return None
    return np.asarray(np.true_divide(arrays[0], arrays[1]))


EVALUATORS: dict[str, Evaluator] = {
    "reshape": _to_shape,
    "expand_dims": _to_shape,
    "squeeze": _to_shape,
    "broadcast_to": _broadcast,
    "permute_dims": _permute,
    "take": _take,
    "concat": _concat,
    "stack": _stack,
    "strided_slice": _slice,
    "scatter_elements": _scatter_elements,
    "astype": _elementwise(lambda a: a),
    "ones_like": _elementwise(np.ones_like),
    "zeros_like": _elementwise(np.zeros_like),
    "add": _elementwise(np.add),
    "subtract": _elementwise(np.subtract),
    "multiply": _elementwise(np.multiply),
    "divide": _divide,
    "maximum": _elementwise(np.maximum),
    "minimum": _elementwise(np.minimum),
    "power": _elementwise(np.power),
    "sqrt": _elementwise(np.sqrt),
    "exp": _elementwise(np.exp),
    "abs": _elementwise(np.abs),
    "negative": _elementwise(np.negative),
    "isnan": _elementwise(np.isnan),
    "where": _elementwise(np.where),
    "equal": _elementwise(np.equal),
    "less": _elementwise(np.less),
    "greater": _elementwise(np.greater),
}
