"""Assignments to a box of a tensor, which TorchScript's exporter writes as scattered elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from convoy.relax.dataflow import dims
from convoy.relax.importer.idioms.definitions import Definitions, static_shape

Box = list[tuple[int, int]]
"""First and end along each axis."""


def raise_box(call: Any, defined: Definitions) -> Any:
    """scatter_nd(x, i, y)  =>  concat(x[:a], y, x[b:]) along each axis the box has not whole, i a constant.

    So ``x[:, 1:, 1:] += y`` comes: with an index for each element of the box.  Of a box that is all of x
    only y is left.
    """
    data, indices, updates = call.args
    if str(call.attrs.reduction) != "update" or (places := defined.constant(indices)) is None:
        return None
    sizes, depth = dims(data) or (), places.shape[-1] if places.ndim else 0
    known = static_shape(relax.ShapeExpr(sizes[:depth]))
    if not 0 < depth <= len(sizes) or known is None or dims(updates) is None:
        return None
    box = _box(places, known)
    if box is None:
        return None
    made = relax.op.reshape(
        updates, relax.ShapeExpr([*(end - first for first, end in box), *sizes[depth:]])
    )
    return _put(data, made, box, known)


def _box(places: NDArray[Any], sizes: Sequence[int]) -> Box | None:
    """The box whose elements these are, one after the other in its order; None if they are not."""
    wrapped = np.where(places < 0, places + np.array(sizes), places)
    flat = wrapped.reshape(-1, len(sizes))
    if not len(flat):
        return None
    box = [(int(first), int(last) + 1) for first, last in zip(flat[0], flat[-1], strict=True)]
    counts = [end - first for first, end in box]
    inside = all(0 <= first < end <= size for (first, end), size in zip(box, sizes, strict=True))
    if not inside or int(np.prod(counts)) != len(flat):
        return None
    listed = np.indices(counts).reshape(len(sizes), -1).T + flat[0]
    return box if np.array_equal(listed, flat) else None


def _put(data: Any, made: Any, box: Box, sizes: Sequence[int]) -> Any:
    """``data`` with ``made`` in the box: the last axis first, within what the box has of those before."""
    for axis in reversed(range(len(box))):
        (first, end), size = box[axis], sizes[axis]
        outer = [(a, *box[a]) for a in range(axis) if box[a] != (0, sizes[a])]
        before, after = (
            _cut(data, [*outer, (axis, *span)]) if span[0] < span[1] else None
            for span in ((0, first), (end, size))
        )
        parts = [part for part in (before, made, after) if part is not None]
        made = relax.op.concat(parts, axis) if len(parts) > 1 else made
    return made


def _cut(data: Any, spans: Sequence[tuple[int, int, int]]) -> Any:
    axes, begin, end = (list(side) for side in zip(*spans, strict=True))
    return relax.op.strided_slice(data, axes, begin, end, [1] * len(axes))
