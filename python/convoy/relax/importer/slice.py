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
    if not all(is_constant(given) for given in inputs[1:3]):
        return None
    if not all(given is None or is_constant(given) for given in inputs[3:5]):
        return None
    dims = x.ty.shape.values
    starts, ends = (given.value.numpy().tolist() for given in inputs[1:3])
    axes, steps = (None if given is None else given.value.numpy().tolist() for given in inputs[3:5])
    axes = [int(axis) % len(dims) for axis in (axes or range(len(starts)))]
    spans = [list(span) for span in zip(axes, starts, ends, steps or [1] * len(starts), strict=True)]
    open_ends = [
        span
        for span in spans
        if span[3] > 0 and span[2] >= END and not isinstance(dims[span[0]], tirx.IntImm)
    ]
    if not open_ends:
        return None
    for span in open_ends:
        span[2] = dims[span[0]]
        if span[1] == 0 and span[3] == 1:
            spans.remove(span)
    return relax.op.strided_slice(x, *zip(*spans, strict=True)) if spans else x
