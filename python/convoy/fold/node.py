"""A call of an op as the folds see it, whichever TVM it comes from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Value: TypeAlias = Any
"""What a door calls a value: a variable in Relax, an expression in Relay.  Hashable."""
Shape: TypeAlias = tuple[int | None, ...]
"""None in place of dimensions known only at run time."""


@dataclass(frozen=True, eq=False)
class Node:
    """One call.  Names and attributes are the door's own; the tables of the folds know both dialects."""

    name: str
    """``nn.conv2d``, ``add``, …"""
    label: str
    """How a report names it, by its name in the model if it has one: ``conv2d layer1.0.conv``."""
    call: Value
    args: Sequence[Value]
    """The fields of a tuple argument are arguments."""
    attrs: Any
    arg_shapes: Sequence[Shape | None]
    arg_dtypes: Sequence[str]
    """Empty for what is no tensor."""
    shape: Shape | None
    """Shape of the result; None if it is no tensor or its rank is unknown."""
    dtype: str


def known_lengths(dims: Sequence[object] | None) -> Shape | None:
    """The shape a door reads, without its own words for a length known only at run time."""
    return None if dims is None else tuple(d if isinstance(d, int) else None for d in dims)
