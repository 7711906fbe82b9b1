"""What every step of a plan has: one call of one kernel by all threads.

Each kernel's own steps stand in ``kernels/``, beside the planner that makes them and the emitter that
writes them.  They are frozen, so that plans compare, print and hash; their fields bear the names of the
kernel's parameters in ``csrc/kernels``, where their meaning is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

from convoy.graph.dtypes import QUANTISED
from convoy.plan.buffers import Array, Map, Operand
from convoy.target import Target

_FEW = 512
"""Elements that take a thread a tenth of a microsecond."""
Arithmetic = Literal["float32", "bf16", "int8"]
"""What a step computes in."""


@dataclass(frozen=True)
class Note:
    """What a step computes."""

    op: str
    """In a word: the op it belongs to."""
    text: str
    """In a line, with the op's name in the model, for comments and reports."""


@dataclass(frozen=True)
class Activation:
    """``cv_activation``: ``kind`` is a ``UnaryKind``; relu and clip are both clamps."""

    kind: str
    a: float = 0.0
    b: float = 0.0


def is_few(elements: int) -> bool:
    """Whether to compute so many by itself takes a thread less time than to meet others."""
    return isinstance(elements, int) and elements <= _FEW


IDENTITY = Activation("identity")


@dataclass(frozen=True)
class Scale:
    """``cv_scale``: what bytes stand for."""

    scale: float
    zero: int
    low: int
    high: int


@dataclass(frozen=True)
class Requantize:
    """``cv_requantize``: what becomes of int32 sums of products of bytes."""

    scale: Array
    shift: Array
    low: float
    high: float
    zero: int
    floats: bool
    """The result is floats."""
    residual_scale: float
    residual_shift: float
    unit: float
    plain: bool
    held: bool = False
    held_low: float = 0.0
    held_high: float = 0.0
    held_unit: float = 0.0


@dataclass(frozen=True)
class Epilogue:
    """``cv_epilogue``: outer(inner(acc + bias) + residual)."""

    bias: Array
    inner: Activation = IDENTITY
    residual: Operand | None = None
    outer: Activation = IDENTITY
    requantize: Requantize | None = None


@dataclass(frozen=True, kw_only=True)
class Step:
    note: Note
    y: Operand

    scratch: tuple[Array, ...] = ()
    """Memory the step writes and reads, and nobody else."""
    cycles: float | None = field(default=None, compare=False, repr=False)
    """What the step was chosen by: estimated, of the busiest thread.  It decides nothing any more, so that
    it is no part of what the step is."""

    @property
    def algorithm(self) -> str:
        """The algorithm, where there is a choice of them."""
        return ""

    @property
    def share_of_products(self) -> float:
        """The share of the multiply-adds of the definition that the algorithm makes."""
        return 1.0

    @property
    def tiling(self) -> str:
        """How the algorithm cuts its work, where it does."""
        return ""

    @property
    def method(self) -> str:
        """Algorithm and tiling in words."""
        return ", ".join(part for part in (self.algorithm, self.tiling) if part)

    @property
    def precision(self) -> Arithmetic:
        """What its products are made in, or where it has none what it computes in."""
        if any(operand.dtype in QUANTISED for operand in self.reads):
            return "int8"
        return "bf16" if "bf16" in self.algorithm else "float32"

    @property
    def description(self) -> str:
        """Its note, with the method where there is one, and whether maps lie in memory as bfloat16."""
        narrow = any(operand.dtype == "bfloat16" for operand in (*self.reads, self.y))
        stored = "bf16 in memory" if narrow and self.precision == "float32" else ""
        how = ", ".join(part for part in (self.method, stored) if part)
        return f"{self.note.text} ({how})" if how else self.note.text

    @property
    def kind(self) -> str:
        """What steps of a table of times are told apart by: the algorithm, or the op where there is one."""
        return self.algorithm or self.note.op

    @property
    def takes_rows(self) -> bool:
        """Whether the images of a batch can be the rows of its product."""
        return False

    @property
    def unshared(self) -> bool:
        """Whether one thread computes it, by its kernel or as there is too little (``plan/alone.py``)."""
        return False

    def least_cycles(self, target: Target) -> float:
        """Cycles of one core, if the step takes longer than to move its operands."""
        return 0.0

    @property
    def writes(self) -> tuple[Operand, ...]:
        return (self.y, *self.scratch)

    @property
    def reads(self) -> tuple[Operand, ...]:
        found: list[Operand] = []
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name in ("y", "scratch"):
                continue
            if isinstance(value, (Array, Map)):
                found.append(value)
            elif isinstance(value, Epilogue):
                found.append(value.bias)
                if value.residual is not None:
                    found.append(value.residual)
                if value.requantize is not None:
                    found += [value.requantize.scale, value.requantize.shift]
            elif isinstance(value, tuple):
                found.extend(v for v in value if isinstance(v, (Array, Map)))
        return tuple(found)
