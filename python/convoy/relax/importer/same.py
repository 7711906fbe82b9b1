"""``auto_pad`` SAME of open sizes: windows that start where only a call knows.

The output has ⌈size / stride⌉ positions, so that with a stride above 1 the padding depends on the size:
a 3x3 of stride 2 has one row in front of an odd number of rows, and none in front of an even one.
"""

from __future__ import annotations

import math
from typing import Any

from tvm import relax

from convoy.relax.importer.sizes.algebra import Ratio

_FILLS = {"Conv": 0.0, "MaxPool": -math.inf, "AveragePool": 0.0}
"""What padding is to an op."""


def pad_as_same(bb: Any, op: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Pad a node's map as SAME says, in place of its ``auto_pad``: widely, and then a slice of it.

    Forms with sizes that are numbers have got their ``pads`` before; other ops are left alone, as are means
    that leave padding out (``convert_same_mean``).
    """
    if op not in _FILLS or (op == "AveragePool" and not attrs.get("count_include_pad", 0)):
        return
    if op == "MaxPool" and attrs["tvm_custom"]["num_outputs"] > 1:
        return  # places are counted in the map that is not padded
    padded = _pad(bb, inputs[0], attrs, _FILLS[op], inputs[1] if op == "Conv" else None)
    if padded is not None:
        inputs[0] = padded
        attrs["auto_pad"], attrs["pads"] = b"NOTSET", [0] * (2 * (padded.ty.ndim - 2))


def convert_same_mean(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """An AveragePool by SAME of open sizes: a sum by the pixels in it, which the same pool counts."""
    x = inputs[0]
    ones = relax.op.ones(relax.ShapeExpr([1, 1, *x.ty.shape.values[2:]]), str(x.ty.dtype))
    operands = [_pad(bb, each, attrs, 0.0, None) for each in (x, bb.emit(ones))]
    if None in operands:
        return None
    taps = len(attrs["kernel_shape"])
    windows = attrs["kernel_shape"], attrs.get("strides", [1] * taps), 0, attrs.get("dilations", [1] * taps)
    mean = getattr(relax.op.nn, f"avg_pool{taps}d")
    of_x, of_ones = (bb.emit(mean(each, *windows, count_include_pad=True)) for each in operands)
    return relax.op.divide(of_x, of_ones)


def _pad(bb: Any, x: Any, attrs: dict[str, Any], fill: float, weight: Any) -> Any:
    """The padded map; None where ``auto_pad`` is another, or sizes are unknown."""
    mode = attrs.get("auto_pad", b"NOTSET")
    if mode not in (b"SAME_UPPER", b"SAME_LOWER") or "float" not in str(x.ty.dtype):
        return None
    shape = bb.algebra.sizes(x)
    kernel = attrs.get("kernel_shape") or (weight is not None and bb.algebra.sizes(weight)[2:])
    if shape is None or not kernel or len(kernel) != len(shape) - 2:
        return None
    ones = [1] * len(kernel)
    widths = [0] * (2 * len(shape))
    spans = []
    along = zip(shape[2:], kernel, attrs.get("strides", ones), attrs.get("dilations", ones), strict=True)
    for axis, (size, taps, stride, dilation) in enumerate(along, start=2):
        reach = (taps - 1) * dilation
        total = _total(bb.algebra, size, reach, stride)
        upper = int(mode == b"SAME_UPPER")
        before = (reach + 1 - upper) // 2
        half = bb.algebra.round_down(Ratio(bb.algebra.add(total, 1 - upper), 2))
        widths[2 * axis : 2 * axis + 2] = before, reach - before
        if not isinstance(half, int) or half != before:
            # so long that TVM counts ⌊(size - 1) / stride⌋ + 1 windows, none with a row that SAME lacks
            widths[2 * axis + 1] = reach
            begin = bb.algebra.subtract(before, half)
            spans.append((axis, begin, bb.algebra.add(bb.algebra.add(begin, size), reach)))
    padded = bb.emit(relax.op.nn.pad(x, widths, "constant", fill)) if any(widths) else x
    if not spans:
        return padded
    axes, *bounds = (list(part) for part in zip(*spans, strict=True))
    begins, ends = ([b if isinstance(b, int) else relax.prim_value(b) for b in side] for side in bounds)
    return bb.emit(relax.op.strided_slice(padded, axes, begins, ends, [1] * len(axes), assume_inbound=True))


def _total(algebra: Any, size: Any, reach: int, stride: int) -> Any:
    """How many rows there are before and behind the map together."""
    windows = algebra.round_down(Ratio(algebra.add(size, stride - 1), stride))
    last = algebra.multiply(algebra.subtract(windows, 1), stride)
    return algebra.most(algebra.subtract(algebra.add(last, reach + 1), size), 0)
