"""Shapes that are known: computed now, and reshapes that do nothing removed."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import relax, tirx

from convoy.relax.importer.idioms.definitions import Definitions, constant, op_name, static_shape


def settle_shape_of(call: Any, defined: Definitions) -> Any:
    """shape_of(x), x of known shape  =>  the shape."""
    shape = getattr(call.args[0].ty, "shape", None)
    return shape if isinstance(shape, relax.ShapeExpr) else None


def settle_shape_tensor(call: Any, defined: Definitions) -> Any:
    """shape_to_tensor(known shape)  =>  constant."""
    shape = defined.value(call.args[0])
    dims = static_shape(shape) if isinstance(shape, relax.ShapeExpr) else None
    return None if dims is None else constant(np.array(dims, np.int64))


def settle_tensor_shape(call: Any, defined: Definitions) -> Any:
    """tensor_to_shape(constant)  =>  the shape."""
    array = defined.constant(call.args[0])
    return None if array is None else relax.ShapeExpr([int(d) for d in array])


def settle_slice(call: Any, defined: Definitions) -> Any:
    """dynamic_strided_slice(x, constants)  =>  strided_slice with numbers."""
    bounds = [defined.constant(argument) for argument in call.args[1:]]
    if any(b is None for b in bounds):
        return None
    begin, end, strides = ([int(v) for v in b] for b in bounds if b is not None)
    return relax.op.strided_slice(call.args[0], list(range(len(begin))), begin, end, strides)


def settle_reshape(call: Any, defined: Definitions) -> Any:
    """reshape(x, variable of a known shape)  =>  reshape(x, the shape)."""
    if isinstance(call.args[1], relax.ShapeExpr):
        return None
    shape = defined.value(call.args[1])
    return relax.op.reshape(call.args[0], shape) if isinstance(shape, relax.ShapeExpr) else None


def drop_identity_reshape(call: Any, defined: Definitions) -> Any:
    """reshape(x, shape of x)  =>  x;  reshape(reshape(x, a), b)  =>  reshape(x, b)."""
    if _same_shape(call, call.args[0]):
        return call.args[0]
    inner = defined.call(call.args[0], "reshape")
    return None if inner is None else relax.op.reshape(inner.args[0], call.args[1])


def drop_identity_broadcast(call: Any, defined: Definitions) -> Any:
    """broadcast_to(x, shape of x)  =>  x."""
    return call.args[0] if _same_shape(call, call.args[0]) else None


def drop_broadcast_beside(call: Any, defined: Definitions) -> Any:
    """divide(x, broadcast_to(y, shape of x))  =>  divide(x, y); the same of other ops that broadcast."""
    for i, wide in enumerate(call.args):
        made = defined.call(wide, "broadcast_to")
        other = call.args[1 - i]
        if made is not None and _same_shape(wide, other) and _is_or_one(made.args[0], other):
            operands = [made.args[0], other] if i == 0 else [other, made.args[0]]
            return relax.Call(call.op, operands, call.attrs)
    return None


def lift_operand(call: Any, defined: Definitions) -> Any:
    """add(x [n, h, t, s], y [t, s])  =>  add(x, y [1, 1, t, s]), where t is open; the same of others.

    So axis 0 of every operand is the images', and t is a size of each.
    """
    for i, low in enumerate(call.args):
        shape, missing = getattr(low.ty, "shape", None), call.ty.ndim - low.ty.ndim
        if missing < 1 or not isinstance(shape, relax.ShapeExpr) or not shape.values:
            continue
        if not isinstance(shape.values[0], tirx.IntImm):
            operands = list(call.args)
            operands[i] = relax.op.expand_dims(low, list(range(missing)))
            return relax.Call(call.op, operands, call.attrs)
    return None


def _is_or_one(narrow: Any, wide: Any) -> bool:
    """Is each length of ``narrow`` certainly 1 or that of ``wide``?"""
    shape = getattr(narrow.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return False
    behind = list(wide.ty.shape.values)[len(wide.ty.shape.values) - len(shape.values) :]
    return all(
        (isinstance(d, tirx.IntImm) and int(d) == 1) or bool(tvm_ffi.structural_equal(d, w))
        for d, w in zip(shape.values, behind, strict=True)
    )


def drop_identity_permute(call: Any, defined: Definitions) -> Any:
    """permute_dims(x, 0, 1, 2, …)  =>  x."""
    axes = call.attrs.axes
    return call.args[0] if axes is not None and [int(a) for a in axes] == list(range(len(axes))) else None


def drop_identity_cast(call: Any, defined: Definitions) -> Any:
    """astype(x, dtype of x)  =>  x."""
    return call.args[0] if str(call.ty.dtype) == str(call.args[0].ty.dtype) else None


def settle_where(call: Any, defined: Definitions) -> Any:
    """where(always, x, y)  =>  x;  where(never, x, y)  =>  y, as the frontend writes an index."""
    condition = defined.constant(call.args[0])
    if condition is None or condition.all() != condition.any():
        return None
    chosen = call.args[1] if condition.all() else call.args[2]
    return chosen if _same_shape(call, chosen) else None


def drop_dropout(item: Any, defined: Definitions) -> Any:
    """dropout(x)[0]  =>  x, at inference."""
    if not isinstance(item, relax.TupleGetItem) or item.index != 0:
        return None
    value = defined.value(item.tuple_value)
    return value.args[0] if op_name(value) == "nn.dropout" else None


def _same_shape(a: Any, b: Any) -> bool:
    left, right = getattr(a.ty, "shape", None), getattr(b.ty, "shape", None)
    return left is not None and right is not None and bool(tvm_ffi.structural_equal(left, right))
