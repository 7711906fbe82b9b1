"""A call of Relax as an op of the graph sees it: its operands, shapes and axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from tvm import relax

from convoy.errors import LoweringError
from convoy.graph.builder import Builder
from convoy.graph.ops import Node
from convoy.relax.dataflow import Dataflow, dims

Array = NDArray[Any]


class Operands:
    """What has become of the variables of a function, and the graph it becomes."""

    def __init__(self, build: Builder, flow: Dataflow) -> None:
        self.build = build
        self.flow = flow
        """The block that is being lowered."""
        self.names: dict[relax.Var, str] = {}
        """The graph's tensor for each of its variables."""

    def tensor(self, expr: relax.Expr) -> str:
        """The graph's tensor for an operand."""
        if isinstance(expr, relax.Var) and self.flow.root(expr) in self.names:
            return self.names[self.flow.root(expr)]
        return self.build.constant(self.array(expr))

    def array(self, expr: relax.Expr) -> Array:
        """The constant an operand is.

        Raises
        ------
        LoweringError  if it is none
        """
        array = self.flow.constant(expr)
        if array is None:
            raise LoweringError(
                "lower",
                self.build.origin,
                f"expected a constant, got {expr}",
                "bind it, or pass strict=False to leave this op to TVM",
            )
        return array

    def shape(self, of: relax.Expr | relax.Type) -> tuple[int, ...]:
        """Shape in the graph of a tensor of the region."""
        return self.build.shape(dims(of))

    def node(self, op: type[Node], call: relax.Call, *data: relax.Expr, **given: Any) -> str:
        """A node whose operands and result are the call's."""
        names = tuple(self.tensor(expr) for expr in data or (call.args[0],))
        return self.build.node(op, names, self.shape(call), **given)

    def axes(self, found: Sequence[int]) -> tuple[int, ...]:
        """Axes of Relax as axes of the graph."""
        return tuple(a + self.build.lift for a in found)
