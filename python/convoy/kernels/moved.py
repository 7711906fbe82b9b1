"""Tensors that are another one's elements in another shape or order: made when, and as, they are read.

A map's reader packs it from where the elements lie, and an array's reader gets it unpacked in its order.
What stands between a product and a convolution is one pass over memory, not two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from convoy.errors import OpenSizeError
from convoy.graph.sizes import hint
from convoy.graph.views import Shape, View, Walk, compose, view_whole
from convoy.plan.buffers import Array, Map
from convoy.plan.step import Note, Step


@dataclass(frozen=True)
class Moved:
    """A tensor as a view of another, ``source``."""

    source: str
    view: View
    note: Note
    copy: Callable[[Note, Array, Array, View], Step]
    """Makes it, where it is read in row-major order: of the source's array."""

    @property
    def is_reshape(self) -> bool:
        """Are the elements in the source's order?"""
        return _steps(self.view) == _steps(view_whole(self.view.shape)) and self.view.offset == 0


def reshaped(view: View, shape: Shape) -> View | None:
    """What a view sees, in another shape; None where an axis would be no single stride."""
    return _single(lambda: compose(view_whole(shape), view.shape, view), shape)


def unpack_strides(view: View, m: Map) -> tuple[int, int, int] | None:
    """Where a map's channels, rows and columns stand in a tensor that is a view of it.

    None where they are no single strides, or the view is no reordering.
    """
    if not view.covers(m.channels * m.height * m.width):
        return None
    own = view_whole(view.shape).strides
    axes = sorted(zip(view.shape, view.strides, own, strict=True), key=lambda axis: -hint(axis[1]))
    axes = [axis for axis in axes if axis[0] != 1]
    places = View(tuple(n for n, _, _ in axes), tuple(to for _, _, to in axes))
    shape = (m.channels, m.height, m.width)
    found = _single(lambda: compose(view_whole(shape), places.shape, places), shape)
    if found is None:
        return None
    channel, row, column = found.strides
    strides = (channel, row if m.height != 1 else m.width * column, column)
    return strides if goes_by_vectors(strides, m.width) else None


def goes_by_vectors(strides: tuple[int, ...], width: int) -> bool:
    """Do channels or pixels of these strides stand side by side?  Others are moved number by number."""
    channel, row, column = strides
    return channel == 1 or (row if width == 1 else column) == 1


def _single(walk: Callable[[], Walk | None], shape: Shape) -> View | None:
    try:
        found = walk()
    except OpenSizeError:
        return None
    if found is None or any(len(factors) > 1 for factors in found.axes):
        return None
    return View(shape, tuple(factors[0][1] if factors else 0 for factors in found.axes), found.offset)


def _steps(view: View) -> list[tuple[int, int]]:
    """Length and stride of the axes that have several steps."""
    return [(n, s) for n, s in zip(view.shape, view.strides, strict=True) if n != 1]
