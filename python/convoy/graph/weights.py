"""Weights that are whole numbers times a scale, as those of a quantised network, become integers again.

Frontends and folds leave such weights as float32.  What they were is still to be seen: in each channel all
are multiples of one number, of at most 255 multiples in a row.  A batch norm or a scale that was multiplied
into them since changes that number alone.  So a quantised weight is known by what it is, whatever form the
network came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from convoy.graph.graph import Array, Graph, drop_unread
from convoy.graph.ops import Conv2d, ConvTranspose2d, Dequantize, MatMul, Node, Tensor

Anchor = Conv2d | ConvTranspose2d | MatMul

MOST_STEPS = 255
"""Between the least and the largest of a byte."""
ROUNDED = 2.0**-21
"""How far a weight may be from a multiple, of itself: a scale and two products were rounded."""
SAMPLE = 24
"""Weights of a channel that are looked at before all are."""


def quantize_weights(graph: Graph) -> Graph:
    """The graph with ``Dequantize`` of integers as the weights of anchors that read quantised data.

    So is the bias, where it is a multiple of what a product of data and weight stands for.
    """
    constants, tensors = dict(graph.constants), dict(graph.tensors)
    nodes: list[Node] = []

    def declare(name: str, array: Array, dtype: str) -> str:
        constants[name] = np.ascontiguousarray(array.astype(dtype))
        tensors[name] = Tensor(name, array.shape, dtype)  # type: ignore[arg-type]
        return name

    def dequantized(name: str, integers: Array, dtype: str, scale: Array, zero: Array, axis: int) -> Node:
        numbers = ((".scale", scale, "float32"), (".zero", zero, dtype))
        parts = [declare(name + end, array, kind) for end, array, kind in numbers]
        tensors[name] = Tensor(name, integers.shape)
        return Dequantize(
            inputs=(declare(f"{name}.integers", integers, dtype), *parts), output=name, axis=axis
        )

    for node in graph.nodes:
        scale_of_data = _scale_of_data(node, graph)
        if scale_of_data is not None and isinstance(node, Anchor):
            found = find_integers(graph.constants[node.inputs[1]], channel_axis(node))
            if found is not None:
                inputs = [node.inputs[0], f"{node.output}.w"]
                nodes.append(dequantized(inputs[1], *found[:1], "int8", *found[1:], channel_axis(node)))
                if len(node.inputs) > 2:
                    inputs.append(node.inputs[2])
                    each = np.tile(np.float32(scale_of_data) * found[1], _repeats(node))
                    bias = _find_multiples(graph.constants[node.inputs[2]], each)
                    if bias is not None:
                        inputs[2] = f"{node.output}.b"
                        nodes.append(dequantized(inputs[2], bias, "int32", each, np.zeros_like(bias), 0))
                node = replace(node, inputs=tuple(inputs))
        nodes.append(node)
    return drop_unread(replace(graph, nodes=tuple(nodes), constants=constants, tensors=tensors))


def channel_axis(anchor: Anchor) -> int:
    """The axis of a weight along which its output channels lie (of a transposed convolution's group)."""
    return 0 if isinstance(anchor, Conv2d) else 1


def _repeats(anchor: Anchor) -> int:
    """How often the channels along that axis are there: in each group of a transposed convolution."""
    return anchor.groups if isinstance(anchor, ConvTranspose2d) else 1


def _scale_of_data(node: Node, graph: Graph) -> float | None:
    """The one scale of the bytes that an anchor with a float32 weight multiplies."""
    data = graph.producer.get(node.inputs[0])
    if (
        not isinstance(node, Anchor)
        or not isinstance(data, Dequantize)
        or node.inputs[1] not in graph.constants
    ):
        return None
    if graph.dtype(data.inputs[0]) == "int32" or any(
        name not in graph.constants for name in node.inputs[1:]
    ):
        return None
    return graph.scalar(data.inputs[1])


def find_integers(
    weight: Array, axis: int, most: int = MOST_STEPS, steps: Sequence[int] = ()
) -> tuple[Array, Array, Array] | None:
    """A weight as (integers - zero) · scale, with a scale and zero point for each number along an axis.

    Parameters
    ----------
    most : int
        Steps between the least and the largest integer: one less than a power of 2.
    steps : Sequence[int]
        How many the largest weight may be, to be tried first.

    Returns
    -------
    tuple[Array, Array, Array] | None
        Integers, scales and zero points, integers and zero points from -(most + 1) / 2 to most / 2; None
        where some channel is not of that form.
    """
    rows = np.moveaxis(weight, axis, 0).reshape(weight.shape[axis], -1)
    if not np.isfinite(rows).all():
        return None
    sizes = np.abs(rows)
    peaks = sizes.max(axis=1).astype(np.float64)
    smallest = np.min(sizes, axis=1, where=sizes > 0, initial=np.inf)
    multiples = np.zeros(rows.shape, np.int32)
    scales = np.ones(len(rows), np.float32)
    waiting = np.flatnonzero(peaks > 0)
    for count in dict.fromkeys((*steps, *range(most // 2, 0, -1), *range(most, most // 2, -1))):
        at = waiting[are_whole(smallest[waiting] / peaks[waiting] * count)]
        at = at[_may_be_multiples(rows, at, peaks[at] / count)]
        if at.size:
            with np.errstate(all="ignore"):  # of the smallest floats a scale is 0
                fits, found = _as_multiples(rows[at], peaks[at] / count)
                fits &= found.max(axis=1) - found.min(axis=1) <= most
            at, found = at[fits], found[fits]
            multiples[at] = found
            scales[at] = _best_scales(rows[at], found, peaks[at] / count)
            waiting = np.setdiff1d(waiting, at, assume_unique=True)
        if not waiting.size:
            break
    if waiting.size:
        return None
    low, high = -(most + 1) // 2, most // 2
    least, largest = multiples.min(axis=1), multiples.max(axis=1)
    shifted = np.where(least < low, low - least, high - largest)  # a zero point is one of them as well
    zeros = np.where((least >= low) & (largest <= high), 0, shifted)
    integers = (multiples + zeros[:, None]).reshape(np.moveaxis(weight, axis, 0).shape)
    return np.moveaxis(integers, 0, axis), scales, zeros


def _may_be_multiples(rows: Array, at: NDArray[np.intp], scales: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Whether a sample of each of some channels is multiples of its scale; short ones need none."""
    if rows.shape[1] <= 2 * SAMPLE:
        return np.ones(len(at), np.bool_)
    sample = rows[at, :: max(1, rows.shape[1] // SAMPLE)][:, :SAMPLE]
    return np.asarray(are_whole(sample / scales[:, None]).all(axis=1))


def are_whole(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
    whole = np.rint(steps)
    return np.asarray(np.abs(steps - whole) <= ROUNDED * np.abs(whole))


def _as_multiples(rows: Array, scales: NDArray[np.float64]) -> tuple[NDArray[np.bool_], Array]:
    """Which rows are multiples of their scale, and of how many steps each number is."""
    steps = rows / scales.astype(np.float32)[:, None]
    whole = np.rint(steps)
    return np.all(np.abs(steps - whole) <= ROUNDED * np.abs(whole), axis=1), whole


def _best_scales(rows: Array, whole: Array, scales: NDArray[np.float64]) -> Array:
    """The float32 scale that gives most of a row's numbers exactly: the likeliest, or one beside it."""
    best: Array = scales.astype(np.float32)
    hits = (whole * best[:, None] == rows).sum(axis=1)
    missed = np.flatnonzero(hits < rows.shape[1])
    wide, there = whole[missed].astype(np.float64), rows[missed]
    squares = np.einsum("ij,ij->i", wide, wide)
    likely = (np.einsum("ij,ij->i", there, wide) / np.maximum(squares, 1)).astype(np.float32)
    for scale in (
        likely,
        np.nextafter(likely, np.float32(-np.inf)),
        np.nextafter(likely, np.float32(np.inf)),
    ):
        exact = (whole[missed] * scale[:, None] == there).sum(axis=1)
        better = exact > hits[missed]
        best[missed[better]], hits[missed[better]] = scale[better], exact[better]
    return best


def _find_multiples(bias: Array, scale: NDArray[np.float32]) -> Array | None:
    """A bias in steps of a scale for each channel; None where it is none."""
    steps = bias.astype(np.float64) / scale
    legal = np.isfinite(steps).all() and (np.abs(steps) < 2**31 - 1).all() and are_whole(steps).all()
    return np.rint(steps).astype(np.int64) if legal else None
