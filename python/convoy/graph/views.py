"""Views: how an op reads or writes a tensor in an order of its own, as NumPy's strides do.

Heads of an attention are views of one product, a transposed operand is a view with its strides exchanged,
and what is broadcast has strides of 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convoy.graph.sizes import hint

Shape = tuple[int, ...]
Array = NDArray[Any]


@dataclass(frozen=True)
class View:
    """Element [i, j, …] is element ``offset + i·strides[0] + j·strides[1] + …`` of a row-major tensor.

    The tensor is that of one image, flat; numbers count elements, none is negative.  Any may be open.
    """

    shape: Shape
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def size(self) -> int:
        """Elements, those that are broadcast as often as they are read."""
        return prod(self.shape)

    @property
    def last(self) -> int:
        """The largest element of the tensor that is touched."""
        return self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))

    def covers(self, size: int) -> bool:
        """Is each element of a tensor of this size in it, and once?"""
        steps = [(s, n) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        steps.reverse()  # axes of likely length 1 stay in their order
        steps.sort(key=hint)
        dense = all(above == s * n for (s, n), (above, _) in pairwise(steps))
        return self.size == size and self.offset == 0 and dense and (not steps or steps[0][0] == 1)


def view_whole(shape: Shape) -> View:
    """A tensor in its own order."""
    return View(shape, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))


def broadcast_view(view: View, shape: Shape) -> View:
    """``view`` as NumPy broadcasts it to ``shape``."""
    missing = len(shape) - len(view.shape)
    own = (0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))
    return View(shape, (*[0] * missing, *own), view.offset)


def broadcast_shapes(x: Shape, y: Shape) -> Shape:
    """What NumPy broadcasts both to; open lengths broadcast where they are equal at every call.

    Raises
    ------
    ValueError
        If they do not.
    """
    rank = max(len(x), len(y))
    pairs = zip((*[1] * (rank - len(x)), *x), (*[1] * (rank - len(y)), *y), strict=True)
    found = tuple(b if a == 1 else a for a, b in pairs)
    for shape in (x, y):
        if any(n not in (1, whole) for n, whole in zip(shape[::-1], found[::-1], strict=False)):
            raise ValueError(f"{x} and {y} do not broadcast")
    return found


def product_views(x: View, y: View) -> tuple[View, View, View]:
    """Views a, b and y of a ``Product`` that multiplies what is seen as NumPy does.

    x [..., M, K] and y [..., K, N], their other axes broadcast, give [..., M, N].

    Raises
    ------
    ValueError
        If they do not broadcast.
    """
    lead = broadcast_shapes(x.shape[:-2], y.shape[:-2])
    a, b = (broadcast_view(view, (*lead, *view.shape[-2:])) for view in (x, y))
    return a, b, view_whole((*lead, x.shape[-2], y.shape[-1]))


def read_view(array: Array, view: View) -> Array:
    """The elements of a view, not to be written to."""
    strides = [step * array.itemsize for step in view.strides]
    flat = np.ascontiguousarray(array).reshape(-1)[view.offset :]
    return np.lib.stride_tricks.as_strided(flat, view.shape, strides, writeable=False)


def permuted(view: View, perm: Sequence[int]) -> View:
    """The axes in another order: axis i is axis ``perm[i]`` of the view."""
    shape, strides = (tuple(of[axis] for axis in perm) for of in (view.shape, view.strides))
    return replace(view, shape=shape, strides=strides)


def exchanged(view: View) -> View:
    """The last two axes exchanged."""
    return permuted(view, (*range(len(view.shape) - 2), -1, -2))


@dataclass(frozen=True)
class Walk:
    """A view whose axes are several strides each, of factors of their lengths, the outer first."""

    axes: tuple[tuple[tuple[int, int], ...], ...]
    """(length, stride) of the factors of each axis; none of an axis of length 1."""
    offset: int


def compose(view: View, shape: Shape, source: View) -> Walk | None:
    """What ``view`` sees of a tensor of this shape that is itself the view ``source`` of another.

    None where it is no walk in strides, as where the rows of a cropped image are one axis.  Likely lengths
    say where to look for one; that it is one, holds at every call.

    Raises
    ------
    OpenSizeError
        If that is not known.
    """
    rows = view_whole(shape).strides
    at = _unravel(view.offset, shape)
    reach = list(at)
    axes = []
    for length, stride in zip(view.shape, view.strides, strict=True):
        factors: list[tuple[int, int]] = []
        while length != 1:
            axis = next((i for i in range(len(shape)) if _goes_along(stride, rows[i], shape[i])), None)
            if axis is None:
                if stride != 0:
                    return None
                factors.insert(0, (length, 0))
                break
            step = stride // rows[axis]
            within = hint((length - 1) * step) < hint(shape[axis])
            count = length if within else shape[axis] // step
            if stride != step * rows[axis]:
                return None
            if not within and (shape[axis] != count * step or length != length // count * count):
                return None
            _put_before(factors, count, step * source.strides[axis])
            reach[axis] += (count - 1) * step
            length, stride = length // count, stride * count
        axes.append(tuple(factors))
    if any(most >= n for most, n in zip(reach, shape, strict=True)):
        return None
    offset = source.offset + sum(i * s for i, s in zip(at, source.strides, strict=True))
    return Walk(tuple(axes), offset)


def _unravel(offset: int, shape: Shape) -> list[int]:
    """Where an element is, axis by axis, in a tensor of this shape."""
    at = []
    for length, row in zip(shape, view_whole(shape).strides, strict=True):
        at.append(0 if length == 1 else offset // row)
        offset -= at[-1] * row
    return at


def _goes_along(stride: int, row: int, length: int) -> bool:
    """Are steps of a stride likely such along an axis of a tensor?"""
    return hint(row) <= hint(stride) < hint(row * length)


def _put_before(factors: list[tuple[int, int]], count: int, stride: int) -> None:
    """Another factor, or a longer first one where both are one walk."""
    if factors and stride == factors[0][0] * factors[0][1]:
        count, stride = count * factors[0][0], factors.pop(0)[1]
    factors.insert(0, (count, stride))


def put_walk(views: Sequence[View], index: int, walk: Walk) -> list[View] | None:
    """``views`` with ``walk`` in place of one of them, the axes before the last two cut alike in all.

    None where one of the last two axes of the walk is no single stride.
    """
    *lead, rows, columns = walk.axes
    if len(rows) > 1 or len(columns) > 1:
        return None
    ends = tuple(factors[0][1] if factors else 0 for factors in (rows, columns))
    found = []
    for i, view in enumerate(views):
        shape: list[int] = []
        strides: list[int] = []
        for stride, factors in zip(view.strides, lead, strict=False):
            behind = (prod(n for n, _ in factors[j + 1 :]) for j in range(len(factors)))
            shape += (n for n, _ in factors)
            strides += (s for _, s in factors) if i == index else (stride * n for n in behind)
        last, offset = (ends, walk.offset) if i == index else (view.strides[-2:], view.offset)
        found.append(View((*shape, *view.shape[-2:]), (*strides, *last), offset))
    return found


def join_axes(views: Sequence[View]) -> list[View]:
    """The same walks with as few axes before the last two as all of the views allow.

    They are in the order in which the last view, an op's output, has them.
    """
    loops = [(n, *(view.strides[axis] for view in views)) for axis, n in enumerate(views[0].shape)]
    kept: list[tuple[int, ...]] = []
    for length, *strides in sorted(loops[:-2], key=lambda loop: -hint(loop[-1])):
        if kept and kept[-1][1:] == tuple(length * stride for stride in strides):
            length *= kept.pop()[0]
        if length != 1:
            kept.append((length, *strides))
    lengths = tuple(loop[0] for loop in kept)
    return [
        View((*lengths, *view.shape[-2:]), (*(loop[i] for loop in kept), *view.strides[-2:]), view.offset)
        for i, view in enumerate(views, 1)
    ]
