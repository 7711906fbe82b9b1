"""Pad by widths that are numbers, or expressions of open sizes."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from convoy.relax.dataflow import is_constant
from convoy.relax.importer.late import expect_least
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.reshape import read_whole
from convoy.relax.importer.sizes import is_late
from convoy.relax.importer.slice import as_bounds

_MODES = {b"constant": "constant", b"reflect": "reflect", b"edge": "replicate", b"wrap": "circular"}
"""What Relax calls ONNX's ways to pad."""


def convert_pad(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """Constant widths and value make one ``relax.nn.pad``, open ones a loop."""
    x, value, axes = inputs[0], inputs[2], read_whole(inputs[3])
    rank, pads = x.ty.ndim, read_whole(inputs[1])
    mode = _MODES.get(attrs.get("mode", b"constant"))
    if mode is None or pads is None or (axes is None and inputs[3] is not None):
        return None
    over = range(rank) if axes is None else [a % rank for a in axes if -rank <= a < rank]
    if len(pads) != 2 * len(over):
        return None
    widths: list[Any] = [0] * (2 * rank)
    for i, axis in enumerate(over):
        widths[2 * axis : 2 * axis + 2] = pads[i], pads[i + len(over)]
    fill = 0.0 if value is None else _scalar(value)
    floats = "float" in str(x.ty.dtype) and fill is not None
    if not all(isinstance(w, int) for w in widths):
        within = _pad_and_cut(bb, x, widths, fill) if floats and mode == "constant" else None
        return _pad_open(bb, x, widths, mode, value) if within is None else within
    if mode != "constant":
        if min(widths, default=0) < 0:
            if (cut := _cut(bb, x, widths, mode)) is None:
                return None
            x, widths = cut, [max(width, 0) for width in widths]
        if not floats:  # TVM's own would read what lies behind the tensor
            return _pad_open(bb, x, widths, mode, value)
    elif not floats or min(widths, default=0) < 0:  # a negative width crops, which nn.pad does not promise
        return None
    return relax.op.nn.pad(x, widths, mode, fill)


def _cut(bb: Any, x: Any, widths: list[int], mode: str) -> Any:
    """What is cropped is no part of what is repeated: cut first, as ONNX Runtime does."""
    algebra, shape = bb.algebra, bb.algebra.sizes(x)
    if shape is None:
        return None
    axes = [axis for axis in range(len(shape)) if min(widths[2 * axis : 2 * axis + 2]) < 0]
    begins = [max(-widths[2 * axis], 0) for axis in axes]
    ends = [algebra.subtract(shape[axis], max(-widths[2 * axis + 1], 0)) for axis in axes]
    for axis, begin, end in zip(axes, begins, ends, strict=True):
        length, widest = algebra.subtract(end, begin), max(*widths[2 * axis : 2 * axis + 2], 0)
        least = 1 + widest if mode == "reflect" else min(widest, 1)
        if isinstance(length, int) and length < least:
            raise NodeError(
                f"expected {least} left along axis {axis} to pad by, got {length}", "cut off less"
            )
        expect_least(bb, [length] if is_late(length) else [], least)
    return bb.emit(
        relax.op.strided_slice(
            x, axes, as_bounds(begins), as_bounds(ends), [1] * len(axes), assume_inbound=True
        )
    )


def _pad_and_cut(bb: Any, x: Any, widths: list[Any], fill: float | None) -> Any:
    """By the most that each width can be, and what is too much cut off: regions take both.

    None where a width has no bound, as that to a multiple of 8 has.
    """
    algebra, shape = bb.algebra, bb.algebra.sizes(x)
    most = [algebra.widest(width) for width in widths]
    if shape is None or None in most:
        return None
    axes, begins, ends = [], [], []
    for axis, size in enumerate(shape):
        before, after = widths[2 * axis : 2 * axis + 2]
        if not (isinstance(before, int) and isinstance(after, int)):
            begin = algebra.subtract(most[2 * axis], before)
            length = reduce(algebra.add, (size, before, after))
            axes.append(axis)
            begins.append(begin)
            ends.append(begin + length)  # as it is, for TVM to see what the length is
    padded = bb.emit(relax.op.nn.pad(x, most, "constant", fill))
    bounds = map(as_bounds, (begins, ends))
    return relax.op.strided_slice(padded, axes, *bounds, [1] * len(axes), assume_inbound=True)


def _pad_open(bb: Any, x: Any, widths: list[Any], mode: str, value: Any) -> Any:
    """Also by widths below 0, which crop."""
    algebra, shape = bb.algebra, bb.algebra.sizes(x)
    if shape is None:
        return None
    before, after = widths[::2], widths[1::2]
    sizes = [algebra.add(algebra.add(d, b), a) for d, b, a in zip(shape, before, after, strict=True)]
    expect_least(bb, [size for size in sizes if is_late(size)])
    cut, left = [0] * len(shape), list(shape)
    if mode != "constant":  # what is cropped is no part of what is repeated
        cut, behind = ([algebra.most(algebra.subtract(0, w), 0) for w in side] for side in (before, after))
        left = [reduce(algebra.subtract, (d, *away)) for d, *away in zip(shape, cut, behind, strict=True)]
        expect_least(bb, left, 1)
    if mode == "reflect":  # a mirror image has as many rows as the image, less the one it is mirrored at
        sides = [(n, w) for n, *ws in zip(left, before, after, strict=True) for w in ws]
        expect_least(bb, [algebra.subtract(algebra.subtract(n, 1), w) for n, w in sides])
    fill = value if value is not None else relax.const(np.zeros((), str(x.ty.dtype)))

    def compute(x: Any, fill: Any, sizes: Any, widths: Any, cut: Any, left: Any) -> Any:
        def pick(*at: Any) -> Any:
            places = [i - b for i, b in zip(at, widths, strict=True)]
            if mode != "constant":
                inside = zip(places, cut, left, strict=True)
                return x(*(c + _PLACES[mode](p - c, n) for p, c, n in inside))
            hits = [tirx.all(p >= 0, p < d) for p, d in zip(places, x.shape, strict=True)]
            return tirx.if_then_else(tirx.all(*hits), x(*places), fill(*(0,) * len(fill.shape)))

        return te.compute(list(sizes), pick, name="pad_open")

    return bb.emit_te(
        compute,
        x,
        fill,
        *map(relax.ShapeExpr, (sizes, before, cut, left)),
        primfunc_name_hint="pad_open",
    )


def _reflect(p: Any, d: Any) -> Any:
    return (d - 1) - tirx.abs((d - 1) - tirx.abs(p))


_PLACES = {
    "reflect": _reflect,
    "replicate": lambda p, d: tirx.max(tirx.min(p, d - 1), tirx.IntImm("int64", 0)),
    "circular": tirx.floormod,
}


def _scalar(expr: Any) -> float | None:
    if not is_constant(expr):
        return None
    array = expr.value.numpy()
    return float(array.item()) if array.size == 1 else None
