"""The row of an op: all that Convoy knows of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from convoy.graph.ops import BinaryKind, UnaryKind
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader

Cost = Literal[
    "elementwise", "in place", "move", "reduction", "window", "convolution", "transposed", "product",
    "attention", "recurrent",
]  # fmt: skip
"""What counts its FLOPs and bytes (``offload/work.py``); ``in place`` keeps elements where they are."""

Pool = Literal["max", "avg", "area avg", "area max"]
"""What a pool gives: of each window, or of each of the areas that an image is cut into."""

AxisZero = Literal[
    "keeps",
    "axes",
    "norm axes",
    "axis",
    "permutation",
    "widths",
    "slices",
    "rows",
    "condition",
    "result",
    "scales",
]
"""By what it moves, cuts or mixes what lies along axis 0, if at all (``offload/axis_zero.py``)."""

Check = Callable[[Reader, Call], str | None]
"""Why a call is not taken, in words, or None."""
Lowering = Callable[[Operands, Call], str]
"""Appends what a call becomes to the graph; returns the name of the tensor it makes."""
ItemLowering = Callable[[Operands, Call, int], str]
"""The same of one item of the tuple that an op gives."""


def nothing(at: Reader, call: Call) -> str | None:
    """The check of an op that is always taken."""
    return None


@dataclass(frozen=True)
class OpRow:
    """One op."""

    relax: str = ""
    relay: str = ""
    """Its names; empty where that TVM has no such op, or Convoy has no use for it there."""
    unary: UnaryKind | None = None
    binary: BinaryKind | None = None
    """What it is in a graph, if it is nothing but that."""
    activation: str = ""
    """What patterns call it where it joins a kernel."""
    cost: Cost = "elementwise"
    axis_zero: AxisZero = "keeps"
    one_operand: bool = False
    """It computes each element from one other: a layout goes through as it is."""
    images: bool = False
    """The data is [N, C, H, W] (or [N, C, W]), whose axis 0 is the images."""
    pool: Pool | None = None
    open_sizes: bool = False
    """Its kernel computes lengths that are known at the call, beside axis 0."""
    heavy: bool = False
    """Worth a call of its own, however small."""
    constants: Mapping[int, str] = field(default_factory=dict)
    """Arguments that must be constants, where a call has them: position and what it is."""
    numbers: Set[int] = frozenset()
    """Those of them that are read when the op is lowered, and so may be of any type."""
    dtypes: Set[str] = frozenset({"float32"})
    """The types that its operands and results may have."""
    takes_constants: bool = False
    """Any of its operands may be a constant, where another is computed."""
    check: Check = nothing
    relax_check: Check = nothing
    """What Relax's form of it needs beside."""
    relay_check: Check = nothing
    not_in_relay: str = ""
    """Why it is always left in Relay: what TVM computes there is another op."""
    lower: Lowering | None = None
    """What it becomes; None for an op that Convoy has no kernel for, or one that gives a tuple."""
    item: ItemLowering | None = None
    """What an item becomes of an op that gives a tuple, of which items are used one by one."""

    @property
    def names(self) -> set[str]:
        return {self.relax, self.relay} - {""}

    @property
    def has_lowering(self) -> bool:
        return self.lower is not None or self.item is not None
