"""Where each output pixel of a ``Resize`` looks in its input, along one axis.

Coordinates are computed in float64 from exact integers, so that they are whole exactly where the
mathematics says so, and rounding never falls on the wrong side by an error of representation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from convoy.graph.ops import Resize


def source_coordinates(node: Resize, axis: int, size: int, output: int) -> NDArray[np.float64]:
    """Coordinates in the input of the centres of all output pixels, not clipped.

    Parameters
    ----------
    axis : int
        0 for H, 1 for W.
    size, output : int
        The input's and the output's size along it.

    Returns
    -------
    float64 [output]
    """
    pixel = np.arange(output, dtype=np.float64)
    if node.coordinates == "align_corners":
        return pixel * (size - 1) / max(output - 1, 1)
    if node.coordinates == "pytorch_half_pixel" and output == 1:
        return np.zeros(1)
    numerator, denominator = (size, output) if node.scales is None else (1, node.scales[axis])
    if node.coordinates == "asymmetric":
        return pixel * numerator / denominator
    return ((2 * pixel + 1) * numerator - denominator) / (2 * denominator)


def nearest_indices(node: Resize, axis: int, size: int, output: int) -> NDArray[np.int64]:
    """The input pixel each output pixel copies: int64 [output], each in [0, size)."""
    coordinates = source_coordinates(node, axis, size, output)
    match node.rounding:
        case "round_prefer_floor":
            rounded = np.ceil(coordinates - 0.5)
        case "round_prefer_ceil":
            rounded = np.floor(coordinates + 0.5)
        case "floor":
            rounded = np.floor(coordinates)
        case "ceil":
            rounded = np.ceil(coordinates)
    return np.clip(rounded.astype(np.int64), 0, size - 1)


def bilinear_weights(
    node: Resize, axis: int, size: int, output: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Index i and weight t of y = (1 - t)·x[i] + t·x[min(i + 1, size - 1)], each [output].

    Where i is the last one both are the same pixel, and t is 1/2: with 0 an infinite one would add
    0 · ∞, which it does not in ONNX Runtime.
    """
    places = clamped_coordinates(node, axis, size, output)
    index = np.floor(places).astype(np.int64)
    return index, np.where(index == size - 1, 0.5, places - index)


def clamped_coordinates(node: Resize, axis: int, size: int, output: int) -> NDArray[np.float64]:
    """The place between two pixels that each output pixel is of: float64 [output] in [0, size - 1]."""
    return np.clip(source_coordinates(node, axis, size, output), 0, size - 1)
