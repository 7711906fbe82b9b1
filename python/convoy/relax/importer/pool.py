"""Pools at the edge of their map: windows that are larger than it, and LpPool's that reach beyond it."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from convoy.graph.shapes import pool_bounds
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.late import name_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.same import convert_same_mean
from convoy.relax.importer.sizes.algebra import Ratio

TAPS_INSIDE = 19
"""From this opset on a mean that counts padding counts nothing beyond it."""


def convert_pool(bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any]) -> Any:
    """Cut the taps that a first window has too many; the frontend does the rest.

    ONNX Runtime divides what is left for the stride by the stride and cuts off, as C does: a window that
    lacks fewer pixels than the stride is still one, of the taps inside.  TVM rounds down, to none.
    A mean that counts padding divides by all taps before opset 19, as if what is lacking were padding.

    Raises
    ------
    NodeError
        Where the window lacks more, of which ONNX Runtime makes nothing or an error.
    """
    x, kernel = inputs[0], [*attrs.get("kernel_shape", [])]
    if attrs.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):  # of a mean, its sizes open
        return convert_same_mean(bb, inputs, attrs)
    spans = _measure(x, attrs)
    if spans is None:
        _close_ceil(bb, inputs, attrs)
    if spans is None or attrs.get("ceil_mode", 0):
        return None
    ones = [1] * len(kernel)
    strides, dilations = [*attrs.get("strides", ones)], attrs.get("dilations", ones)
    pads = [*(attrs.get("pads") or [0] * (2 * len(kernel)))]
    divides_by_all = attrs.get("count_include_pad", 0) and attrs["tvm_custom"]["opset"] < TAPS_INSIDE
    for i, (*_, missing) in enumerate(spans):
        if missing and divides_by_all:
            pads[i + len(kernel)] += missing
        elif missing:
            padded = (kernel[i] - 1) * dilations[i] + 1 - missing
            kernel[i] = (padded - 1) // dilations[i] + 1
            strides[i] += padded  # nor is there a second one
    attrs["kernel_shape"], attrs["strides"], attrs["pads"] = kernel, strides, pads
    return None


def _close_ceil(bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any]) -> None:
    """Ceil mode of open sizes as padding behind the map.

    There are ⌈(padded size - reach) / stride⌉ + 1 windows, and of these only such as start in front of the
    end.  TVM says so by a condition in the shape, which its own passes do not compile (0.27): nor do they
    see for most sizes, such as that of a padded map, that no window starts beyond the end.
    """
    if not attrs.get("ceil_mode", 0):
        return
    kernel = attrs.get("kernel_shape", [])
    ones, pads = [1] * len(kernel), [*(attrs.get("pads") or [0] * (2 * len(kernel)))]
    reaches = [(k - 1) * d + 1 for k, d in zip(kernel, attrs.get("dilations", ones), strict=True)]
    before, after = pads[: len(kernel)], pads[len(kernel) :]
    along = zip(reaches, attrs.get("strides", ones), after, strict=True)
    behind = [min(end + stride, reach) - 1 for reach, stride, end in along]
    if attrs.get("count_include_pad", 0) and any(pads):  # a mean counts these, and not what is behind them
        widths = [n for pair in zip(before, after, strict=True) for n in pair]
        inputs[0] = bb.normalize(relax.op.nn.pad(inputs[0], [0] * 4 + widths, "constant", 0.0))
        before, behind = [0] * len(kernel), [b - a for b, a in zip(behind, after, strict=True)]
    attrs["pads"], attrs["ceil_mode"], attrs["count_include_pad"] = [*before, *behind], 0, 0


def convert_lp_pool(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """(Σ |x|^p)^(1/p), its padding written out: the frontend's mean leaves out what is beyond the padding.

    None (the frontend's own way) for other types than float32 and float64.
    """
    x, kernel, dtype = inputs[0], attrs.get("kernel_shape", []), str(inputs[0].ty.dtype)
    spans = _measure(x, attrs) or _measure_open(x, attrs)
    if spans is None or dtype not in ("float32", "float64") or len(kernel) not in (1, 2, 3):
        return None
    ones = [1] * len(kernel)
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    p = constant(np.array(attrs.get("p", 2), dtype))
    powers = bb.normalize(relax.op.power(relax.op.abs(x), p))
    widths = [n for before, after, over, missing in spans for n in (before, after + over + missing)]
    if any(widths):
        powers = bb.normalize(relax.op.nn.pad(powers, [0] * 4 + widths, "constant", 0.0))
    pool = getattr(relax.op.nn, f"avg_pool{len(kernel)}d")
    # whole windows: were those counted that a mean leaves out, TVM would take minutes for open sizes
    mean = bb.normalize(pool(powers, kernel, strides, 0, dilations, count_include_pad=True))
    if attrs.get("ceil_mode", 0):
        mean = _drop_windows(bb, mean, bb.algebra.sizes(x), spans, strides)
    total = relax.op.multiply(mean, constant(np.array(np.prod(kernel), dtype)))
    return relax.op.power(total, constant(np.asarray(np.ones((), dtype) / p.value.numpy())))


def _drop_windows(bb: Any, made: Any, sizes: Any, spans: Any, strides: Any) -> Any:
    """Without the windows that start behind the last pixel, of which ceil mode has none."""
    algebra, ends = bb.algebra, {}
    found = algebra.sizes(made)
    for axis, ((before, *_), stride) in enumerate(zip(spans, strides, strict=True), start=2):
        starts = algebra.round_up(Ratio(algebra.add(sizes[axis], before), stride))
        windows = algebra.least(found[axis], starts)
        if not algebra.same(windows, found[axis]):
            ends[axis] = windows
    if not ends:
        return made
    bounds = name_sizes(bb, list(ends.values()))
    ones = [1] * len(ends)
    last = [b if isinstance(b, int) else relax.prim_value(b) for b in bounds]
    return bb.normalize(
        relax.op.strided_slice(made, list(ends), [0] * len(ends), last, ones, assume_inbound=True)
    )


def _measure_open(x: Any, attrs: dict[str, Any]) -> list[tuple[int, int, int, int]] | None:
    """What ``_measure`` says, of a map of open sizes: in ceil mode room for any last window."""
    kernel = attrs.get("kernel_shape", [])
    if attrs.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID") or x.ty.ndim != len(kernel) + 2:
        return None
    pads, strides = attrs.get("pads") or [0] * (2 * len(kernel)), attrs.get("strides", [1] * len(kernel))
    ceil = bool(attrs.get("ceil_mode", 0))
    along = zip(pads[: len(kernel)], pads[len(kernel) :], strides, strict=True)
    return [(before, after, (stride - 1) * ceil, 0) for before, after, stride in along]


def _measure(x: Any, attrs: dict[str, Any]) -> list[tuple[int, int, int, int]] | None:
    """Per spatial axis: padding before and after, and what the outer windows lack.

    That is what the last window of ceil mode reaches beyond the padding, and what the first window lacks.
    None for open sizes or an ``auto_pad`` that is still open.
    """
    if attrs.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        return None
    kernel = attrs.get("kernel_shape", [])
    sizes = [static_shape(relax.ShapeExpr([d])) for d in x.ty.shape.values[2:]]
    ones = [1] * len(kernel)
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    pads = attrs.get("pads") or [0] * (2 * len(kernel))
    if not len(sizes) == len(kernel) == len(strides) == len(dilations) == len(pads) // 2:
        return None
    spans = []
    for i, known in enumerate(sizes):
        if known is None:
            return None
        size, before, after = known[0], pads[i], pads[i + len(kernel)]
        reach = (kernel[i] - 1) * dilations[i] + 1
        missing = max(reach - (size + before + after), 0)
        if missing and missing >= strides[i]:
            raise NodeError(
                f"expected a window no larger than the padded map of {size + before + after}, got {reach}",
                "pad the map, or make the window smaller",
            )
        floor, ceil = pool_bounds(size, kernel[i], strides[i], dilations[i], before, after)
        windows = ceil if attrs.get("ceil_mode", 0) else floor
        over = max((windows - 1) * strides[i] + reach - (size + before + after), 0)
        spans.append((before, after, 0 if missing else over, missing))
    return spans
