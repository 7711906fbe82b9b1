"""Pools at the edge of their map: windows that are larger than it, and LpPool's that reach beyond it."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax

from convoy.graph.shapes import pool_bounds
from convoy.relax.importer.idioms.definitions import constant, static_shape
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.same import convert_same_mean


def convert_pool(bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any]) -> Any:
    """Cut the taps that a first window has too many; the frontend does the rest.

    ONNX Runtime divides what is left for the stride by the stride and cuts off, as C does: a window that
    lacks fewer pixels than the stride is still one, of the taps inside.  TVM rounds down, to none.

    Raises
    ------
    NodeError
        Where the window lacks more, of which ONNX Runtime makes nothing or an error.
    """
    x, kernel = inputs[0], [*attrs.get("kernel_shape", [])]
    if attrs.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):  # of a mean, its sizes open
        return convert_same_mean(bb, inputs, attrs)
    spans = _measure(x, attrs)
    if spans is None or attrs.get("ceil_mode", 0):
        return None
    ones = [1] * len(kernel)
    strides, dilations = [*attrs.get("strides", ones)], attrs.get("dilations", ones)
    for i, (*_, missing) in enumerate(spans):
        if missing:
            padded = (kernel[i] - 1) * dilations[i] + 1 - missing
            kernel[i] = (padded - 1) // dilations[i] + 1
            strides[i] += padded  # nor is there a second one
    attrs["kernel_shape"], attrs["strides"] = kernel, strides
    return None


def convert_lp_pool(bb: relax.BlockBuilder, inputs: Any, attrs: dict[str, Any]) -> Any:
    """(Σ |x|^p)^(1/p), its padding written out: the frontend's mean leaves out what is beyond the padding.

    None (the frontend's own way) for open sizes and other types than float32.
    """
    x, kernel = inputs[0], attrs.get("kernel_shape", [])
    spans = _measure(x, attrs)
    if spans is None or str(x.ty.dtype) != "float32" or len(kernel) not in (1, 2, 3):
        return None
    p = constant(np.array(attrs.get("p", 2), np.float32))
    powers = bb.normalize(relax.op.power(relax.op.abs(x), p))
    widths = [
        0,
        0,
        0,
        0,
        *(n for before, after, over, missing in spans for n in (before, after + over + missing)),
    ]
    padded = bb.normalize(relax.op.nn.pad(powers, widths, "constant", 0.0))
    mean = getattr(relax.op.nn, f"avg_pool{len(kernel)}d")(
        padded,
        kernel,
        attrs.get("strides", [1] * len(kernel)),
        0,
        attrs.get("dilations", [1] * len(kernel)),
    )
    total = relax.op.multiply(mean, constant(np.array(np.prod(kernel), np.float32)))
    return relax.op.power(total, constant(np.asarray(np.float32(1) / p.value.numpy())))


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
