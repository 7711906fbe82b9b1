"""Which pixels of its input, and how much of each, ONNX Runtime's ``Resize`` takes along one axis.

Resizing is separable: each axis has a table of its own.  Coordinates are computed as ONNX Runtime
computes them, in float32 and in its order, so that where a coordinate lies between two pixels the
same one is taken.  ONNX's own definition says float64 or nothing; by 1.7, which no float holds, it
differs.  ONNX Runtime's other ways are kept too, since models were checked with them: an axis whose
scale is 1 stays as it is even in ``tf_crop_and_resize``, and so does a tensor that keeps its sizes by
fractional scales; a scale given as a size is the quotient in float32; and linear interpolation takes
the last pixel half and half.  Not kept: that it overlooks negative ``axes`` beside a
``keep_aspect_ratio_policy``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]

HALF = np.float32(0.5)
TIE = np.float32(1e-6)
"""Pixels; measured with ONNX Runtime 1.32."""
BEFORE_11 = "before opset 11"
"""Our own name of the way to round before ONNX had one: up where an axis shrinks, else down."""
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", BEFORE_11)
COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "asymmetric",
    "align_corners",
    "tf_crop_and_resize",
)


@dataclass(frozen=True)
class Axis:
    """One axis that is resized."""

    number: int
    size: int
    output: int
    scale: np.float32
    region: tuple[float, float] = (0.0, 1.0)
    """Start and end of the crop, of the whole axis."""


@dataclass(frozen=True)
class Sampling:
    """How a ``Resize`` samples: its attributes."""

    mode: str
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


@dataclass(frozen=True)
class Table:
    """y[o] = Σ over taps t of weights[t, o] · x[indices[t, o]]."""

    indices: Indices
    """[taps, output]"""
    weights: Floats | None
    """[taps, output]; None: all are 1, of a single tap."""
    outside: NDArray[np.bool_]
    """[output]: the crop reaches outside of the image, whose place a fixed value takes."""


def make_table(axis: Axis, sampling: Sampling) -> Table:
    """The table of one axis."""
    at = _coordinates(axis, sampling.coordinates)
    cropped = sampling.coordinates == "tf_crop_and_resize" and axis.scale != 1
    outside = (at < 0) | (at > axis.size - 1) if cropped else np.zeros(axis.output, bool)
    if sampling.mode == "nearest":
        return Table(_nearest(at, axis, sampling.rounding)[None], None, outside)
    if sampling.antialias:
        indices, weights = _antialiased(at, axis, sampling)
    elif sampling.mode == "linear":
        indices, weights = _linear(at, axis)
    else:
        indices, weights = _cubic(at, axis, sampling)
    return Table(indices, weights, outside)


def _coordinates(axis: Axis, rule: str) -> Floats:
    """The place in the input of each output pixel, not clipped: float32 [output]."""
    x = np.arange(axis.output, dtype=np.float32)
    return np.asarray(x if axis.scale == 1 else _place(x, axis, rule), np.float32)


def _place(x: Floats, axis: Axis, rule: str) -> Any:
    scale, size, output = axis.scale, np.float32(axis.size), np.float32(axis.output)
    match rule:
        case "asymmetric":
            return x / scale
        case "pytorch_half_pixel" if axis.output == 1:
            return x
        case "half_pixel" | "pytorch_half_pixel":
            return (x + HALF) / scale - HALF
        case "tf_half_pixel_for_nn":
            return (x + HALF) / scale
        case "align_corners":
            return x if axis.output == 1 else x * (size - 1) / (output - 1)
        case "half_pixel_symmetric":
            offset = size / 2 * (1 - output / (scale * size))
            return offset + (x.astype(np.float64) + 0.5) / scale - 0.5
        case "tf_crop_and_resize":
            start, end = (np.float32(side) for side in axis.region)
            if axis.output == 1:
                return [0.5 * float(start + end) * (axis.size - 1)]
            return start * (size - 1) + x * (end - start) * (size - 1) / (output - 1)
    raise AssertionError(f"no coordinates {rule}: only COORDINATES are let pass")


def _nearest(at: Floats, axis: Axis, rounding: str) -> Indices:
    match rounding:
        case "round_prefer_floor":
            picked = np.where(_is_half(at), np.floor(at), _round(at))
        case "round_prefer_ceil":
            picked = np.where(_is_half(at), np.ceil(at), _round(at))
        case "floor":
            picked = np.floor(at)
        case "ceil":
            picked = np.ceil(at)
        case "before opset 11":
            picked = np.ceil(at) if axis.scale < 1 else np.trunc(at)
        case _:
            raise AssertionError(f"no rounding {rounding}: only NEAREST are let pass")
    return np.clip(picked.astype(np.int64), 0, axis.size - 1)


def _is_half(at: Floats) -> NDArray[np.bool_]:
    """Between two pixels, or so near to it that ONNX Runtime takes it for an error of rounding."""
    return np.asarray(np.abs(at - (np.trunc(at) + HALF)) <= TIE)


def _round(at: Floats) -> Floats:
    """C's round: a half away from zero."""
    return np.asarray(np.copysign(np.floor(np.abs(at.astype(np.float64)) + 0.5), at), np.float32)


def _linear(at: Floats, axis: Axis) -> tuple[Indices, Floats]:
    at = np.clip(at, 0, axis.size - 1).astype(np.float32)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, axis.size - 1)
    share = at - low.astype(np.float32)
    last = low == high
    weights = [np.where(last, HALF, 1 - share), np.where(last, HALF, share)]
    return np.stack([low, high]), np.stack(weights).astype(np.float32)


def _cubic(at: Floats, axis: Axis, sampling: Sampling) -> tuple[Indices, Floats]:
    first = np.floor(at).astype(np.int64) - 1
    indices = first + np.arange(4)[:, None]
    weights = _cubic_filter(at.astype(np.float64) - indices, sampling.cubic)
    if sampling.exclude_outside:
        weights[(indices < 0) | (indices >= axis.size)] = 0
        weights /= weights.sum(0)
    return np.clip(indices, 0, axis.size - 1), weights.astype(np.float32)


def _cubic_filter(distance: NDArray[np.float64], a: float) -> NDArray[np.float64]:
    """Keys' kernel: 1 at distance 0, nothing from 2 on."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = (((d - 5) * d + 8) * d - 4) * a
    return np.where(d < 1, near, np.where(d < 2, far, 0.0))


def _antialiased(at: Floats, axis: Axis, sampling: Sampling) -> tuple[Indices, Floats]:
    """Where an axis shrinks, the kernel is stretched by as much, so that no pixel is left out."""
    if axis.size == axis.output:
        return np.arange(axis.output)[None], np.ones((1, axis.output), np.float32)
    stretch = np.float32(max(np.float32(1) / axis.scale, np.float32(1)))
    support = np.float32(1 if sampling.mode == "linear" else 2) * stretch
    centers = at + HALF
    begins = np.floor(centers - support + HALF).astype(np.int64)
    ends = np.floor(centers + support + HALF).astype(np.int64)
    taps: list[dict[int, float]] = []
    for center, begin, end in zip(centers, begins, ends, strict=True):
        pixels = np.arange(begin, end)
        distance = (pixels - np.float64(center) + 0.5) / stretch
        if sampling.mode == "linear":
            weights = np.maximum(1 - np.abs(distance), 0)
        else:
            weights = _cubic_filter(distance, sampling.cubic)
        if sampling.exclude_outside:
            weights[(pixels < 0) | (pixels >= axis.size)] = 0
        total = weights.sum() or 1.0
        sums: dict[int, float] = {}
        for pixel, weight in zip(np.clip(pixels, 0, axis.size - 1), weights / total, strict=True):
            sums[int(pixel)] = sums.get(int(pixel), 0.0) + float(weight)
        taps.append(sums)
    return _pad_taps(taps)


def _pad_taps(taps: list[dict[int, float]]) -> tuple[Indices, Floats]:
    """Equally many taps everywhere: the last is split, since 0 · ∞ of a tap that is none would show."""
    count = max(len(sums) for sums in taps)
    indices = np.zeros((count, len(taps)), np.int64)
    weights = np.zeros((count, len(taps)), np.float32)
    for o, sums in enumerate(taps):
        pixels, shares = list(sums), list(sums.values())
        while len(pixels) < count:
            pixels.append(pixels[-1])
            shares[-1] /= 2
            shares.append(shares[-1])
        indices[:, o], weights[:, o] = pixels, shares
    return indices, weights
