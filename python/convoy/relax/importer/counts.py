"""Ops that make as much as an open number says: Split, OneHot and ConstantOfShape."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from onnx import numpy_helper
from tvm import relax

from convoy.relax.checks import check
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.late import expect_least, read_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.reshape import read_whole
from convoy.relax.importer.sizes import is_late
from convoy.relax.importer.sizes.algebra import LARGEST


def convert_split(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """Into parts of open sizes or an open axis, or of none, which TVM's has not: a slice each."""
    x, parts = inputs[0], read_whole(inputs[1]) or attrs.get("split")
    shape = bb.algebra.sizes(x)
    if shape is None or not -len(shape) <= attrs.get("axis", 0) < len(shape):
        return None
    axis = attrs.get("axis", 0) % len(shape)
    if parts is None:
        if not isinstance(shape[axis], int) and "num_outputs" not in attrs:  # with it the last is shorter
            rest = bb.algebra.modulo(shape[axis], attrs["tvm_custom"]["num_outputs"])
            if not bb.algebra.same(rest, 0):
                check(bb, [rest], [0])
        return None
    if isinstance(shape[axis], int) and all(isinstance(p, int) and p for p in parts):
        return None
    expect_least(bb, [p for p in parts if is_late(p)])
    ends = [0]
    for part in parts:
        ends.append(bb.algebra.add(ends[-1], part))
    if not bb.algebra.same(ends[-1], shape[axis]):
        check(bb, [ends[-1]], [shape[axis]])
    return relax.Tuple(
        [
            bb.emit(relax.op.strided_slice(x, [axis], [_value(a)], [_value(b)], [1], assume_inbound=True))
            for a, b in pairwise(ends)
        ]
    )


def convert_one_hot(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """An element of ``values`` for each number below the depth, which may be known at the call alone.

    TVM's own takes no depth in floats or in a vector, and gives what is no float32 for values of it (0.27).

    Raises
    ------
    NodeError
        For a depth that is no size.
    """
    indices, values = inputs[0], inputs[2]
    if static_shape(values) != [2]:
        raise NodeError(f"expected two values in a vector, got the shape {values.ty.shape}", "export it so")
    depth = [_read_depth(bb, inputs[1])]
    dtype, rank = str(indices.ty.dtype), indices.ty.ndim + 1
    axis = attrs.get("axis", -1) % rank
    numbers = bb.emit(relax.op.arange(0, _value(depth[0]), 1, "int64"))
    across = [depth[0] if a == axis else 1 for a in range(rank)]
    numbers = bb.emit(relax.op.reshape(numbers, relax.ShapeExpr(across)))
    at = bb.emit(relax.op.expand_dims(bb.emit(relax.op.astype(indices, "int64")), axis))
    total = bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(depth)))
    if "uint" not in dtype:
        behind = bb.emit(relax.op.add(at, total))
        at = bb.emit(relax.op.where(relax.op.less(at, relax.const(0, "int64")), behind, at))
    off, on = (bb.emit(relax.op.take(values, relax.const(i, "int64"), axis=0)) for i in (0, 1))
    return relax.op.where(bb.emit(relax.op.equal(at, numbers)), on, off)


def _read_depth(bb: Any, given: Any) -> Any:
    """The depth of a OneHot, cut off to a whole number; a call ends where it is below 1 or no size."""
    if is_constant(given):
        numbers = given.value.numpy().reshape(-1)
        if numbers.size != 1 or not 1 <= numbers[0] <= LARGEST:
            raise NodeError(f"expected a depth from 1 to 2^31, got {numbers.tolist()}", "correct it")
        return int(numbers[0])
    depth = read_whole(given)
    if depth is None:  # one in floats is no size else
        if static_shape(given) not in ([], [1]):
            raise NodeError("expected one number as the depth, got more", "give it alone")
        number = bb.emit(relax.op.reshape(given, [1]))
        if "float" in str(given.ty.dtype):  # NaN and what is too large have no whole number
            least, most, none = (relax.const(float(n), str(given.ty.dtype)) for n in (1, LARGEST, 0))
            some = bb.emit(relax.op.greater_equal(number, least))
            right = bb.emit(relax.op.logical_and(some, bb.emit(relax.op.less_equal(number, most))))
            number = bb.emit(relax.op.where(right, number, none))
        depth = read_sizes(bb, relax.op.astype(number, "int64"), 1).values
    expect_least(bb, depth, 1)
    return depth[0]


def convert_constant_of_shape(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """A number that is repeated, as often as open sizes say."""
    shape, value = inputs[0], attrs.get("value")
    if is_constant(shape):
        return None
    if not isinstance(shape, relax.ShapeExpr):
        raise NodeError("expected a shape of up to 16 sizes, got one whose length only a run knows")
    expect_least(bb, read_whole(shape) or [])
    fill = np.zeros(1, np.float32) if value is None else numpy_helper.to_array(value)
    return relax.op.broadcast_to(constant(fill.reshape(())), shape)


def _value(number: Any) -> Any:
    return number if isinstance(number, int) else relax.prim_value(number)
