"""``auto_pad`` SAME of open sizes, where windows start where only a call knows, and ``output_shape``.

The output has ⌈size / stride⌉ positions, so that with a stride above 1 the padding depends on the size:
a 3x3 of stride 2 has one row in front of an odd number of rows, and none in front of an even one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.sizes.algebra import Ratio
from convoy.relax.importer.slice import as_bounds

_OPS = frozenset({"Conv", "MaxPool", "AveragePool", "LpPool"})


def pad_as_same(bb: Any, op: str, inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Pad a node's map as SAME says, in place of its ``auto_pad``: widely, and then a slice of it.

    Forms with sizes that are numbers have got their ``pads`` before; other ops are left alone, as are means
    that leave padding out (``convert_same_mean``) and places in a map (``convert_max_pool``).
    """
    if op not in _OPS or (op == "AveragePool" and not attrs.get("count_include_pad", 0)):
        return
    if op == "MaxPool" and attrs["tvm_custom"]["num_outputs"] > 1:
        return
    if attrs.get("auto_pad") in (b"SAME_UPPER", b"SAME_LOWER"):
        lowest = least_of(inputs[0]) if op == "MaxPool" else 0.0
        inputs[0], _ = pad_map(bb, inputs[0], attrs, lowest, inputs[1] if op == "Conv" else None)
        attrs["auto_pad"], attrs["pads"] = b"NOTSET", [0] * (2 * (inputs[0].ty.ndim - 2))
        attrs.pop("ceil_mode", None)  # SAME says how many windows there are


def least_of(x: Any) -> float:
    """What padding is to a maximum."""
    dtype = str(x.ty.dtype)
    return -math.inf if "float" in dtype else float(np.iinfo(dtype).min)


def convert_same_mean(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> Any:
    """An AveragePool by SAME of open sizes: a sum by the pixels in it, which the same pool counts."""
    x = inputs[0]
    ones = relax.op.ones(relax.ShapeExpr([1, 1, *x.ty.shape.values[2:]]), str(x.ty.dtype))
    operands = [pad_map(bb, each, attrs, 0.0)[0] for each in (x, bb.emit(ones))]
    taps = len(attrs["kernel_shape"])
    windows = attrs["kernel_shape"], attrs.get("strides", [1] * taps), 0, attrs.get("dilations", [1] * taps)
    mean = getattr(relax.op.nn, f"avg_pool{taps}d")
    of_x, of_ones = (bb.emit(mean(each, *windows, count_include_pad=True)) for each in operands)
    return relax.op.divide(of_x, of_ones)


def pad_map(
    bb: Any, x: Any, attrs: dict[str, Any], fill: float, weight: Any = None
) -> tuple[Any, list[Any]]:
    """The map, padded with ``fill`` as SAME says, and how many rows, columns, … are in front of it.

    Raises
    ------
    NodeError
        Where the lengths of the window are open, or not as many as the map's.
    """
    shape = bb.algebra.sizes(x)
    kernel = attrs.get("kernel_shape") or (weight is not None and bb.algebra.sizes(weight)[2:])
    if (
        shape is None
        or not kernel
        or len(kernel) != len(shape) - 2
        or not all(isinstance(k, int) for k in kernel)
    ):
        raise NodeError("expected windows of known lengths where auto_pad is SAME, got open ones")
    ones = [1] * len(kernel)
    widths = [0] * (2 * len(shape))
    spans, fronts = [], []
    along = zip(shape[2:], kernel, attrs.get("strides", ones), attrs.get("dilations", ones), strict=True)
    for axis, (size, taps, stride, dilation) in enumerate(along, start=2):
        reach = (taps - 1) * dilation
        total = _total(bb.algebra, size, reach, stride)
        upper = int(attrs["auto_pad"] == b"SAME_UPPER")
        before = (reach + 1 - upper) // 2
        half = bb.algebra.round_down(Ratio(bb.algebra.add(total, 1 - upper), 2))
        fronts.append(half)
        widths[2 * axis : 2 * axis + 2] = before, reach - before
        if not isinstance(half, int) or half != before:
            # so long that TVM counts ⌊(size - 1) / stride⌋ + 1 windows, none with a row that SAME lacks
            widths[2 * axis + 1] = reach
            begin = bb.algebra.subtract(before, half)
            spans.append((axis, begin, bb.algebra.add(bb.algebra.add(begin, size), reach)))
    padded = bb.emit(relax.op.nn.pad(x, widths, "constant", fill)) if any(widths) else x
    if not spans:
        return padded, fronts
    axes, *bounds = (list(part) for part in zip(*spans, strict=True))
    begins, ends = map(as_bounds, bounds)
    cut = relax.op.strided_slice(padded, axes, begins, ends, [1] * len(axes), assume_inbound=True)
    return bb.emit(cut), fronts


def resolve_output_shape(bb: Any, inputs: list[Any], attrs: dict[str, Any]) -> None:
    """Write the ``output_shape`` of a ConvTranspose, which the frontend does not read, out as padding.

    Raises
    ------
    NodeError
        Where sizes are open: how much is cut off depends on them.
    """
    if not attrs.get("output_shape"):
        return
    data, weight = (bb.algebra.sizes(each) for each in inputs[:2])
    sizes = [*(data or [None])[2:], *(weight or [None])[2:]]
    if not sizes or not all(isinstance(size, int) for size in sizes):
        raise NodeError("expected known sizes where there is an output_shape, got open ones")
    kernel = sizes[len(sizes) // 2 :]
    wanted, ones = attrs.pop("output_shape")[-len(kernel) :], [1] * len(kernel)
    before, after, grown = [], [], []
    for axis, (size, taps) in enumerate(zip(sizes, kernel, strict=False)):
        reach = (taps - 1) * attrs.get("dilations", ones)[axis] + 1
        extra = attrs.get("output_padding", [0] * len(kernel))[axis]
        total = (size - 1) * attrs.get("strides", ones)[axis] + reach + extra - wanted[axis]
        small, large = max(total, 0) // 2, max(total, 0) - max(total, 0) // 2
        upper = attrs.get("auto_pad") == b"SAME_UPPER"
        before.append(small if upper else large)
        after.append(large if upper else small)
        grown.append(extra + max(-total, 0))
    attrs.pop("auto_pad", None)
    attrs["pads"], attrs["output_padding"] = [*before, *after], grown


def _total(algebra: Any, size: Any, reach: int, stride: int) -> Any:
    """How many rows there are before and behind the map together."""
    windows = algebra.round_down(Ratio(algebra.add(size, stride - 1), stride))
    last = algebra.multiply(algebra.subtract(windows, 1), stride)
    return algebra.most(algebra.subtract(algebra.add(last, reach + 1), size), 0)
