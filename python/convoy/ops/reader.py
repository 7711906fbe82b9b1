"""A call of either TVM as a check sees it: its attributes in one normal form, constants and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from convoy.graph.builder import Span
from convoy.graph.ops import PadMode, Pair, Sides

Array = NDArray[Any]
Expr = Any
"""An expression of either TVM."""


class Call(Protocol):
    """A call of an op of either TVM."""

    args: Sequence[Expr]
    attrs: Any


class Attributes(Protocol):
    """A door's module ``attributes``: what its ops say about themselves, in one normal form."""

    def axes(self, call: Call) -> tuple[int, ...]: ...
    def axis(self, call: Call) -> int: ...
    def permutation(self, call: Call) -> tuple[int, ...]: ...
    def padding(self, call: Call) -> Sides: ...
    def pad_widths(self, call: Call) -> tuple[Pair, ...]: ...
    def pad_mode(self, call: Call) -> PadMode | None: ...
    def pad_value(self, call: Call) -> float | None: ...
    def slices(self, call: Call) -> list[Span] | None: ...
    def piece(self, call: Call, index: int) -> Span: ...
    def norm_axes(self, call: Call) -> tuple[int, ...]: ...
    def bounds(self, call: Call) -> tuple[float, float] | None: ...


class TensorType(NamedTuple):
    """What a call reads or computes."""

    dtype: str
    """Empty where it is unknown."""
    dims: Sequence[Any] | None
    """Lengths of axes, those known only at run time in the door's own words; None for an unknown shape."""
    constant: bool = False


class Reader(Protocol):
    """What a door can say of the calls of a module."""

    @property
    def attributes(self) -> Attributes: ...

    def name(self, call: Call) -> str:
        """The name of its op, as rows have it; empty for what is no call of one."""

    def constant(self, expr: Expr) -> Array | None:
        """The array an expression is, if it is a constant."""

    def is_constant(self, expr: Expr) -> bool: ...

    def is_parameter(self, expr: Expr) -> bool:
        """Does an expression come from outside?"""

    def dims(self, of: Expr) -> Sequence[Any] | None:
        """Lengths of the axes of a tensor; None for what is none, or of unknown shape."""

    def size(self, length: Any) -> Any:
        """A length as a size, if it is in the door's own words and sizes can say it; else as it is."""

    def elements(self, of: Expr) -> int | None:
        """How many elements a tensor has, perhaps a size known at the call; None where it is unknown."""

    def reads(self, call: Call) -> list[TensorType]:
        """The tensors a call reads; a tuple gives its fields."""

    def results(self, call: Call) -> list[TensorType]:
        """The tensors a call computes that may be used: of a tuple but a split's the first."""

    def slices(self, call: Call) -> list[Span] | None:
        """What strided_slice cuts, bounds known at the call among them; None where they are unknown."""

    def turns(self, call: Call) -> bool:
        """Does this door's fold bring the op into channels-first layout?"""
