"""A call of either TVM as a lowering sees it: its operands, shapes and axes in the graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from convoy.errors import LoweringError
from convoy.graph.builder import Builder, Span
from convoy.graph.ops import Node
from convoy.ops.reader import Array, Attributes, Call, Expr


class Operands(ABC):
    """What has become of the expressions of a region, and the graph it becomes."""

    def __init__(self, build: Builder, attributes: Attributes) -> None:
        self.build = build
        self.attributes = attributes

    @abstractmethod
    def tensors(self, expr: Expr) -> tuple[str, ...]:
        """The graph's tensors for an operand that may be a tuple."""

    @abstractmethod
    def constant(self, expr: Expr) -> Array | None:
        """The array an operand is, if it is a constant."""

    @abstractmethod
    def shape(self, of: Expr) -> tuple[int, ...]:
        """Shape in the graph of a tensor, or a type, of the region."""

    @abstractmethod
    def slices(self, call: Call) -> list[Span]:
        """What strided_slice cuts."""

    def tensor(self, expr: Expr) -> str:
        """The graph's tensor for an operand."""
        return self.tensors(expr)[0]

    def array(self, expr: Expr) -> Array:
        """The constant an operand is.

        Raises
        ------
        LoweringError
            If it is none.
        """
        array = self.constant(expr)
        if array is None:
            raise LoweringError(
                "lower",
                self.build.origin,
                f"expected a constant, got {expr}",
                "bind it, or leave this op out of the region",
            )
        return array

    def lower_lifted(self, of: Expr, lower: Callable[[], str]) -> str:
        """What ``lower`` makes of a tensor or type, with an axis of length 1 in front while it does.

        A graph never moves axis 0: an op that would sees it as axis 1.
        """
        before, self.build.reading = self.build.reading, "lifted"
        made = lower()
        self.build.reading = before
        return self.build.reshape(made, self.shape(of))

    def lift(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Tensors of the graph, with that axis while there is one."""
        if not self.build.lift:
            return names
        return tuple(self.build.reshape(name, (1, *self.build.shape_of(name))) for name in names)

    def node(self, op: type[Node], call: Call, *data: Expr, **given: Any) -> str:
        """A node whose operands and result are the call's."""
        names, shape = (self.tensor(expr) for expr in data or (call.args[0],)), self.shape(call)
        return self.build.node(op, self.build.lifted(names, shape), shape, **given)

    def axis(self, found: int) -> int:
        """An axis of the region as an axis of the graph."""
        return found + self.build.lift

    def axes(self, found: Sequence[int]) -> tuple[int, ...]:
        """Axes of the region as axes of the graph."""
        return tuple(map(self.axis, found))
