"""Trilu: the part of a matrix above or below a diagonal, which a call may choose."""

from __future__ import annotations

from typing import Any

from tvm import relax

from convoy.relax.importer.reshape import read_whole


def convert_trilu(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """A diagonal of a known number is the frontend's; else columns are compared with rows.

    The mask of tokens behind a cache of keys is such: its diagonal is the number of tokens in the cache.
    """
    x, diagonal = inputs[0], inputs[1] if len(inputs) > 1 else None
    shape, known = bb.algebra.sizes(x), read_whole(diagonal)
    if diagonal is None or shape is None or (known is not None and isinstance(known[0], int)):
        return None
    if known is not None:
        diagonal = bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(known)))
    rows, columns = (bb.emit(relax.op.arange(0, length, 1, "int64")) for length in shape[-2:])
    first = bb.emit(relax.op.add(bb.emit(relax.op.expand_dims(rows, 1)), diagonal))
    compare = relax.op.greater_equal if attrs.get("upper", 1) else relax.op.less_equal
    kept = bb.emit(compare(columns, first))
    if str(x.ty.dtype) == "bool":
        return relax.op.logical_and(x, kept)
    return relax.op.where(kept, x, relax.const(0, str(x.ty.dtype)))
