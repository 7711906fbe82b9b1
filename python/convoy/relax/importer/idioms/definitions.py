"""What a rewrite sees: the definitions behind a call's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from numpy.typing import NDArray
from tvm import relax, tirx

from convoy.ops.table import kind_of
from convoy.relax.dataflow import is_constant, op_name, read_array

Array = NDArray[np.generic]

__all__ = ["Array", "Definitions", "Rewrite", "constant", "is_constant", "op_name", "static_shape"]


def definition(expr: Any, lookup: Callable[[relax.Var], relax.Expr | None]) -> Any:
    """What defines ``expr``, through renamings; a parameter is its own definition."""
    while isinstance(expr, relax.Var):
        bound = lookup(expr)
        if bound is None:
            return expr
        expr = bound
    return expr


@dataclass(frozen=True)
class Definitions:
    """``graph.polynomial.Arithmetic`` of a Relax function."""

    module: tvm.IRModule
    lookup: Callable[[relax.Var], relax.Expr | None]

    def value(self, expr: Any) -> Any:
        """What defines ``expr``, through renamings; a parameter is its own definition."""
        return definition(expr, self.lookup)

    def source(self, expr: Any) -> Any:
        """The variable (or constant) behind plain renamings."""
        while isinstance(expr, relax.Var):
            bound = self.lookup(expr)
            if not isinstance(bound, relax.Var):
                return bound if bound is not None and is_constant(bound) else expr
            expr = bound
        return expr

    def same(self, a: Any, b: Any) -> bool:
        """Do both stand for one tensor?"""
        return bool(self.source(a).same_as(self.source(b)))

    def call(self, expr: Any, op: str) -> Any:
        """The call of ``op`` that defines ``expr``, or None."""
        value = self.value(expr)
        return value if op_name(value) == op else None

    def constant(self, expr: Any) -> Array | None:
        """The array behind ``expr``, or None."""
        value = self.value(expr)
        return read_array(value) if is_constant(value) else None

    def scalar(self, expr: Any) -> float | None:
        """The number behind a constant of one element that broadcasts without adding axes."""
        value = self.value(expr)
        if isinstance(value, tirx.IntImm | tirx.FloatImm):
            return float(value.value)
        array = self.constant(value)
        return float(array.item()) if array is not None and array.size == 1 else None

    def clip(self, expr: Any) -> tuple[Any, float, float] | None:
        """x, low and high if ``expr`` is x clipped to [low, high]."""
        clip = self.call(expr, "clip")
        low, high = (self.scalar(bound) for bound in clip.args[1:]) if clip is not None else (None, None)
        return None if low is None or high is None else (clip.args[0], low, high)

    def operation(self, expr: Any) -> tuple[str, Sequence[Any]]:
        """The kind of elementwise op that defines ``expr``, as in a graph, and its arguments."""
        value = self.value(expr)
        kind = kind_of(op_name(value))
        return kind, value.args if kind else ()


Rewrite = Callable[[Any, Definitions], Any]
"""From a call and the definitions behind it to a better expression, or None."""


def constant(array: Array) -> relax.Expr:
    """A constant of exactly the array's dtype (``relax.const`` narrows 64-bit ones)."""
    return relax.const(tvm.runtime.tensor(np.asarray(array, order="C")))


def static_shape(expr: Any) -> list[int] | None:
    """The shape of a tensor, or a shape's own values, if all dimensions are known."""
    shape = expr if isinstance(expr, relax.ShapeExpr) else getattr(expr.ty, "shape", None)
    if not isinstance(shape, relax.ShapeExpr):
        return None
    dims = list(shape.values)
    return [int(d) for d in dims] if all(isinstance(d, tirx.IntImm) for d in dims) else None
