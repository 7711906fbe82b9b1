"""Slice of an axis whose size is open.

Exporters write "to the end" as an end of 2³¹-1 or 2⁶³-1.  TVM makes ``min(2147483647, n)`` of the new size,
takes that number for the most it can be, and sets so many elements aside in memory.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from convoy.relax.dataflow import is_constant

END = 2**31 - 1
"""From here on an end is the end of any axis."""


def convert_slice(bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any]) -> Any:
    """A slice to the end of an open axis ends at that axis' size; one that begins at 0 too is left out.

    None (the frontend's own way) for all others.
    """
    x = inputs[0]
    if not isinstance(x.ty, relax.TensorType) or x.ty.shape is None or isinstance(x, relax.ShapeExpr):
        return None
    given = [
        None if i is None else i.value.numpy().tolist() for i in inputs[1:5] if i is None or is_constant(i)
    ]
    if len(given) < 4 or given[0] is None or given[1] is None:
        return None
    dims, (starts, ends) = x.ty.shape.values, given[:2]
    axes = [int(a) % len(dims) for a in (given[2] or range(len(starts)))]
    steps = given[3] or [1] * len(starts)
    spans = list(zip(axes, starts, ends, steps, strict=True))
    to_end = [
        step > 0 and end >= END and not isinstance(dims[axis], tirx.IntImm) for axis, _, end, step in spans
    ]
    if not any(to_end):
        return None
    ends = [dims[axis] if whole else end for whole, (axis, _, end, _) in zip(to_end, spans, strict=True)]
    kept = [
        i for i, (_, start, _, step) in enumerate(spans) if not (to_end[i] and start == 0 and step == 1)
    ]
    if not kept:
        return x
    return relax.op.strided_slice(x, *([part[i] for i in kept] for part in (axes, starts, ends, steps)))
