"""A tensor whose elements are known while a model is imported: numbers, and expressions of open sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tvm import relax

from convoy.relax.importer.idioms.definitions import constant
from convoy.relax.importer.sizes.algebra import Number, Ratio

MOST_ELEMENTS = 512
"""Elements of a tensor that is carried so, at most."""


@dataclass(frozen=True)
class Known:
    """``elements`` are an array of objects, of the shape of the tensor; ``dtype`` is that of the tensor."""

    elements: NDArray[np.object_]
    dtype: str

    @property
    def fixed(self) -> bool:
        """Are all elements numbers?"""
        return all(isinstance(e, int | float) for e in self.elements.flat)

    @property
    def array(self) -> NDArray[Any]:
        """The elements, all numbers, as an array of the tensor's type."""
        return self.elements.astype(self.dtype)

    def shape_expr(self) -> relax.ShapeExpr | None:
        """A shape with these elements; None if they are no whole numbers, or no vector."""
        whole = [_whole(e) for e in self.elements.flat]
        missing = self.elements.ndim > 1 or any(e is None for e in whole)
        return None if missing else relax.ShapeExpr(whole)

    def compute(self, bb: relax.BlockBuilder) -> relax.Expr:
        """The tensor, computed when the model runs."""
        if self.fixed:
            return constant(self.array)
        tops = [e.top if isinstance(e, Ratio) else e for e in self.elements.flat]
        bottoms = [e.bottom if isinstance(e, Ratio) else 1 for e in self.elements.flat]
        floats = [e if isinstance(e, float) else 1.0 for e in tops]
        made = self._tensor(bb, [1 if isinstance(e, float) else e for e in tops])
        if any(f != 1.0 for f in floats):
            made = bb.emit(relax.op.multiply(made, self._constant(floats)))
        if any(not isinstance(b, int) or b != 1 for b in bottoms):
            made = bb.emit(relax.op.divide(made, self._tensor(bb, bottoms)))
        return made

    def _tensor(self, bb: relax.BlockBuilder, whole: Sequence[Any]) -> relax.Expr:
        made = bb.emit(relax.op.shape_to_tensor(relax.ShapeExpr(whole)))
        if self.elements.ndim != 1:
            made = bb.emit(relax.op.reshape(made, self.elements.shape))
        return made if self.dtype == "int64" else bb.emit(relax.op.astype(made, self.dtype))

    def _constant(self, numbers: Sequence[float]) -> relax.Expr:
        return constant(np.array(numbers, self.dtype).reshape(self.elements.shape))


def _whole(element: Number) -> Number:
    """The same as a whole number; None if it is none."""
    if isinstance(element, Ratio):
        return element.top if isinstance(element.bottom, int) and element.bottom == 1 else None
    return int(element) if isinstance(element, int | float) and element == int(element) else element


def known_array(array: NDArray[Any]) -> Known:
    """The tensor that a constant is."""
    elements = np.empty(array.shape, object)
    elements[...] = np.array(array.tolist(), object).reshape(array.shape)
    return Known(elements, str(array.dtype))


def known_numbers(numbers: Sequence[Number], shape: Sequence[int], dtype: str) -> Known:
    elements = np.empty(len(numbers), object)
    elements[:] = numbers
    return Known(elements.reshape(shape), dtype)
