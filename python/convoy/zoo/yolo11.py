"""YOLO11n, a detector as YOLOv8n is (``yolo.py``): narrower blocks, attention at the coarsest stage.

By its published table of layers.  A block's inner results are themselves either bottlenecks or blocks of
two; scores come from depthwise convolutions.
"""

from __future__ import annotations

import onnx

from convoy.zoo.draft import Draft
from convoy.zoo.yolo import BINS, CLASSES, decode, joined, pyramid, silu_conv, twice

HEAD = 64
"""Channels of values of a head of the attention; of queries and keys half as many each."""


def yolo11(name: str, *, size: int = 640, width: int = 16) -> onnx.ModelProto:
    d, w = Draft(name, x=(1, 3, size, size)), width
    x = silu_conv(d, silu_conv(d, "x", 3, w, 3, 2), w, 2 * w, 3, 2)
    x = _block(d, x, 2 * w, 4 * w, inner=w)
    fine = _block(d, silu_conv(d, x, 4 * w, 4 * w, 3, 2), 4 * w, 8 * w, inner=2 * w)
    middle = _block(d, silu_conv(d, fine, 8 * w, 8 * w, 3, 2), 8 * w, 8 * w, nested=True)
    coarse = _block(d, silu_conv(d, middle, 8 * w, 16 * w, 3, 2), 16 * w, 16 * w, nested=True)
    coarse = _attention(d, pyramid(d, coarse, 16 * w), 16 * w, size // 32)
    middle = _block(d, joined(d, twice(d, coarse), middle), 24 * w, 8 * w)
    fine = _block(d, joined(d, twice(d, middle), fine), 16 * w, 4 * w)
    middle = _block(d, joined(d, silu_conv(d, fine, 4 * w, 4 * w, 3, 2), middle), 12 * w, 8 * w)
    coarse = joined(d, silu_conv(d, middle, 8 * w, 8 * w, 3, 2), coarse)
    coarse = _block(d, coarse, 24 * w, 16 * w, nested=True)
    heads = [
        _head(d, x, k * w, 4 * w, size // s)
        for x, k, s in ((fine, 4, 8), (middle, 8, 16), (coarse, 16, 32))
    ]
    return d.model(*decode(d, d.op("Concat", *heads, axis=2), size))


def _block(d: Draft, x: str, given: int, made: int, *, inner: int = 0, nested: bool = False) -> str:
    half = inner or made // 2
    parts = d.ops("Split", silu_conv(d, x, given, 2 * half), d.ints(half, half), outputs=2, axis=1)
    parts.append(_pair(d, parts[-1], half) if nested else _bottleneck(d, parts[-1], half, half // 2))
    return silu_conv(d, joined(d, *parts), 3 * half, made)


def _bottleneck(d: Draft, x: str, channels: int, inner: int) -> str:
    return d.add(x, silu_conv(d, silu_conv(d, x, channels, inner, 3), inner, channels, 3))


def _pair(d: Draft, x: str, channels: int) -> str:
    """Two bottlenecks on one half of the channels, nothing on the other."""
    half = channels // 2
    y = silu_conv(d, x, channels, half)
    for _ in range(2):
        y = _bottleneck(d, y, half, half)
    return silu_conv(d, joined(d, y, silu_conv(d, x, channels, half)), channels, channels)


def _attention(d: Draft, x: str, channels: int, side: int) -> str:
    """Attention among all pixels, on one half of the channels."""
    half, pixels = channels // 2, side * side
    heads = max(half // HEAD, 1)
    size = half // heads
    left, right = d.ops("Split", silu_conv(d, x, channels, channels), d.ints(half, half), outputs=2, axis=1)
    packed = d.reshape(d.conv(right, half, 2 * half, 1), 1, heads, 2 * size, pixels)
    q, k, v = d.ops("Split", packed, d.ints(size // 2, size // 2, size), outputs=3, axis=2)
    scores = d.op("MatMul", d.transpose(q, 0, 1, 3, 2), k)
    scores = d.op("Softmax", d.op("Mul", scores, d.constant((size // 2) ** -0.5)), axis=-1)
    values = d.reshape(d.op("MatMul", v, d.transpose(scores, 0, 1, 3, 2)), 1, half, side, side)
    near = d.conv(d.reshape(v, 1, half, side, side), half, half, 3, groups=half)
    y = d.add(right, d.conv(d.add(values, near), half, half, 1))
    y = d.add(y, d.conv(silu_conv(d, y, half, 2 * half), 2 * half, half, 1))
    return silu_conv(d, joined(d, left, y), channels, channels)


def _head(d: Draft, x: str, given: int, boxes: int, side: int) -> str:
    """Distances and scores [1, 64 + 80, pixels]; ``boxes`` are channels on the way to the distances."""
    found = silu_conv(d, silu_conv(d, x, given, boxes, 3), boxes, boxes, 3)
    sides = d.conv(found, boxes, 4 * BINS, 1)
    scores, y = max(boxes, CLASSES), x
    for channels in (given, scores):
        y = d.conv(y, channels, channels, 3, act="Silu", groups=channels)
        y = silu_conv(d, y, channels, scores)
    return d.reshape(joined(d, sides, d.conv(y, scores, CLASSES, 1)), 1, 4 * BINS + CLASSES, side * side)
