"""Views: how an op reads or writes a tensor in an order of its own, as NumPy's strides do.

Heads of an attention are views of one product, a transposed operand is a view with its strides exchanged,
and what is broadcast has strides of 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np


@dataclass(frozen=True)
class View:
    """Element [i, j, …] is element ``offset + i·strides[0] + j·strides[1] + …`` of a row-major tensor.

    The tensor is that of one image, flat; numbers count elements, none is negative.
    """

    shape: tuple[int, ...]
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
        steps = sorted((s, n) for n, s in zip(self.shape, self.strides, strict=True) if n > 1)
        dense = all(above == s * n for (s, n), (above, _) in pairwise(steps))
        return self.size == size and self.offset == 0 and dense and (not steps or steps[0][0] == 1)


def view_whole(shape: tuple[int, ...]) -> View:
    """A tensor in its own order."""
    return View(shape, tuple(prod(shape[axis + 1 :]) for axis in range(len(shape))))


def broadcast_view(view: View, shape: tuple[int, ...]) -> View:
    """``view`` as NumPy broadcasts it to ``shape``."""
    missing = len(shape) - len(view.shape)
    own = (0 if n == 1 else s for n, s in zip(view.shape, view.strides, strict=True))
    return View(shape, (*[0] * missing, *own), view.offset)


def product_views(x: tuple[int, ...], y: tuple[int, ...]) -> tuple[View, View, View]:
    """Views a, b and y of a ``Product`` that multiplies tensors of these shapes as NumPy does.

    x [..., M, K] and y [..., K, N], their other axes broadcast, give [..., M, N].

    Raises
    ------
    ValueError
        If they do not broadcast.
    """
    lead = np.broadcast_shapes(x[:-2], y[:-2])
    a, b = (broadcast_view(view_whole(shape), (*lead, *shape[-2:])) for shape in (x, y))
    return a, b, view_whole((*lead, x[-2], y[-1]))
