"""What a user can ask of a compilation.  The defaults are the recommended ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from typing import Literal, get_args

from convoy.errors import ConvoyError

Accuracy = Literal["direct", "fast", "fastest"]


@dataclass(frozen=True)
class Options:
    """Options of one compilation, the same through every door.

    Raises
    ------
    ConvoyError  for an accuracy that does not exist, a number of threads that is negative or no integer,
        or seconds that are negative or no number
    """

    threads: int = 0
    """Threads per region; 0: the physical cores of the machine that runs the library."""
    accuracy: Accuracy = "fast"
    """direct: sums in the order of the definition; fast: Winograd convolutions where they are faster (error
    of each below 1e-5 of its largest output); fastest: larger Winograd tiles too (below 5e-5)."""
    tune: float = 0.0
    """Seconds to spend on measuring, in place of estimating, how to compute each convolution."""
    strict: bool = False
    """Raise ``RefusedError`` for the first op that is not offloaded."""
    merge: bool = True
    """False: one external function per composite instead of merged regions."""
    disabled_patterns: frozenset[str] = field(default_factory=frozenset)
    """Patterns to switch off, each alone: without ``convoy.conv2d_relu``, a conv2d and its relu are taken
    as two; ``convoy.conv2d`` is a conv2d that nothing follows."""
    disabled_ops: frozenset[str] = field(default_factory=frozenset)
    """Ops to leave to TVM wherever they stand: ``conv2d`` leaves out all convolutions."""
    exclude: frozenset[str] = field(default_factory=frozenset)
    """Names of model nodes to keep out."""
    keep: Path | None = None
    """Folder that receives the generated C and weights."""
    cache: Path | None = None
    """Compile cache; None: the user's cache folder."""

    def __post_init__(self) -> None:
        if self.accuracy not in get_args(Accuracy):
            raise ConvoyError(
                "options",
                "accuracy",
                f"expected one of {', '.join(get_args(Accuracy))}, got {self.accuracy!r}",
                "take fast, the default",
            )
        if not isinstance(self.threads, Integral) or self.threads < 0:
            raise ConvoyError(
                "options",
                "threads",
                f"expected a number of threads, got {self.threads!r}",
                "take 0 for the physical cores of the machine that runs the library",
            )
        if not isinstance(self.tune, Real) or not self.tune >= 0:  # NaN is no number of seconds either
            raise ConvoyError(
                "options",
                "tune",
                f"expected a number of seconds, got {self.tune!r}",
                "take 0 for estimates in place of measurements",
            )
