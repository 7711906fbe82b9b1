"""YOLOv8n, a detector: boxes and scores of all pixels, before any are dropped.

Exporters join the two; pixels are hundreds and scores below 1, so that together no error of a score shows.

By its published table of layers: each stage halves the image; C2f blocks keep the results of all their
bottlenecks; boxes are means over 16 distances for each side.
"""

from __future__ import annotations

import numpy as np
import onnx

from convoy.zoo.draft import Draft

BINS = 16
"""Distances that a side of a box may have."""
CLASSES = 80


def yolo(name: str, *, size: int = 640, width: int = 16) -> onnx.ModelProto:
    d, w = Draft(name, x=(1, 3, size, size)), width
    x = silu_conv(d, silu_conv(d, "x", 3, w, 3, 2), w, 2 * w, 3, 2)
    x = _c2f(d, x, 2 * w, 2 * w, 1)
    fine = _c2f(d, silu_conv(d, x, 2 * w, 4 * w, 3, 2), 4 * w, 4 * w, 2)
    middle = _c2f(d, silu_conv(d, fine, 4 * w, 8 * w, 3, 2), 8 * w, 8 * w, 2)
    coarse = _c2f(d, silu_conv(d, middle, 8 * w, 16 * w, 3, 2), 16 * w, 16 * w, 1)
    coarse = pyramid(d, coarse, 16 * w)
    middle = _c2f(d, joined(d, twice(d, coarse), middle), 24 * w, 8 * w, 1, shortcut=False)
    fine = _c2f(d, joined(d, twice(d, middle), fine), 12 * w, 4 * w, 1, shortcut=False)
    middle = _c2f(
        d, joined(d, silu_conv(d, fine, 4 * w, 4 * w, 3, 2), middle), 12 * w, 8 * w, 1, shortcut=False
    )
    coarse = _c2f(
        d, joined(d, silu_conv(d, middle, 8 * w, 8 * w, 3, 2), coarse), 24 * w, 16 * w, 1, shortcut=False
    )
    heads = [
        _head(d, x, k * w, 4 * w, size // s)
        for x, k, s in ((fine, 4, 8), (middle, 8, 16), (coarse, 16, 32))
    ]
    return d.model(*decode(d, d.op("Concat", *heads, axis=2), size))


def silu_conv(d: Draft, x: str, given: int, made: int, kernel: int = 1, stride: int = 1) -> str:
    return d.conv(x, given, made, kernel, stride, act="Silu")


def joined(d: Draft, *parts: str) -> str:
    return d.op("Concat", *parts, axis=1)


def twice(d: Draft, x: str) -> str:
    scales = d.constant((1, 1, 2, 2))
    return d.op(
        "Resize", x, "", scales, mode="nearest", nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )  # fmt: skip


def _c2f(d: Draft, x: str, given: int, made: int, count: int, *, shortcut: bool = True) -> str:
    half = made // 2
    parts = d.ops("Split", silu_conv(d, x, given, made), d.ints(half, half), outputs=2, axis=1)
    for _ in range(count):
        y = silu_conv(d, silu_conv(d, parts[-1], half, half, 3), half, half, 3)
        parts.append(d.add(parts[-1], y) if shortcut else y)
    return silu_conv(d, joined(d, *parts), len(parts) * half, made)


def pyramid(d: Draft, x: str, channels: int) -> str:
    """What lies within 5, 9 and 13 pixels, beside the pixel itself."""
    parts = [silu_conv(d, x, channels, channels // 2)]
    for _ in range(3):
        parts.append(d.op("MaxPool", parts[-1], kernel_shape=[5, 5], pads=[2] * 4, strides=[1, 1]))
    return silu_conv(d, joined(d, *parts), 2 * channels, channels)


def _head(d: Draft, x: str, given: int, boxes: int, side: int) -> str:
    """Distances and scores [1, 64 + 80, pixels]; ``boxes`` are channels on the way to the distances."""
    scores = max(boxes, CLASSES)
    found = []
    for wide, made in ((boxes, 4 * BINS), (scores, CLASSES)):
        y = silu_conv(d, silu_conv(d, x, given, wide, 3), wide, wide, 3)
        found.append(d.conv(y, wide, made, 1))
    return d.reshape(joined(d, *found), 1, 4 * BINS + CLASSES, side * side)


def decode(d: Draft, x: str, size: int) -> tuple[str, str]:
    """Centre and size of each box [1, 4, pixels], and its scores [1, 80, pixels]."""
    steps = [s for s in (8, 16, 32) for _ in range((size // s) ** 2)]
    places = [np.indices((size // s,) * 2)[::-1].reshape(2, -1) + 0.5 for s in (8, 16, 32)]
    sides, scores = d.ops("Split", x, d.ints(4 * BINS, CLASSES), outputs=2, axis=1)
    bins = d.transpose(d.reshape(sides, 1, 4, BINS, len(steps)), 0, 2, 1, 3)
    mean = d.constant(np.arange(BINS).reshape(1, BINS, 1, 1))
    means = d.op("Conv", d.op("Softmax", bins, axis=1), mean, kernel_shape=[1, 1])
    near, far = d.ops("Split", d.reshape(means, 1, 4, len(steps)), d.ints(2, 2), outputs=2, axis=1)
    centres = d.constant(np.concatenate(places, axis=1)[None])
    low, high = d.op("Sub", centres, near), d.add(centres, far)
    middle = d.op("Div", d.add(low, high), d.constant(2.0))
    box = d.op("Mul", joined(d, middle, d.op("Sub", high, low)), d.constant(np.array(steps)))
    return box, d.op("Sigmoid", scores)
