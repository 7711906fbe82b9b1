"""What a user can ask of a compilation.  The defaults are the recommended ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from pathlib import Path
from shlex import quote
from typing import Any, Literal, get_args

from convoy.errors import ConvoyError

Accuracy = Literal["direct", "fast", "fastest"]
Precision = Literal["float32", "bf16"]
Names = str | Iterable[str]
"""Names, or one text with commas between them."""

MOST_THREADS = 256
"""As many as the runtime starts (``csrc/runtime/team.c``)."""

_NUMBERS = (
    (
        "threads",
        MOST_THREADS,
        "threads",
        "take 0 for the physical cores of the machine that runs the library",
    ),
    ("cores", MOST_THREADS, "cores", "take 0 for those of the target"),
    ("l2_bytes", 1 << 30, "bytes", "take 0 for the L2 cache of the target"),
)
"""Options that are whole numbers: the most, of what, and what to do."""


@dataclass(frozen=True)
class Options:
    """Options of one compilation, the same through every door.

    Raises
    ------
    ConvoyError
        For a value that does not fit, with what would.
    """

    threads: int = 0
    """Threads per region; 0: the physical cores of the machine that runs the library."""
    accuracy: Accuracy = "fastest"
    """fastest: Winograd convolutions where they are faster (error of each below 5e-5 of its largest
    output); fast: none of the largest tiles (below 1e-5); direct: sums in the order of the definition."""
    precision: Precision = "float32"
    """bf16: weights, maps and products in bfloat16 where that pays, sums in float32, on CPUs that have
    instructions for it; on others float32, and the report says so."""
    tune: float = 0.0
    """Seconds to spend on measuring, in place of estimating, how to compute each convolution."""
    strict: bool = False
    """Raise ``RefusedError`` for the first op that is not offloaded."""
    merge: bool = True
    """False: one external function per composite (in Relay, composite or op) instead of merged regions."""
    disabled_patterns: frozenset[str] = field(default_factory=frozenset)
    """Patterns to switch off, each alone: without ``convoy.conv2d_relu``, a conv2d and its relu are taken
    as two; ``convoy.conv2d`` is a conv2d that nothing follows.  An idiom by itself (``convoy.hardswish``)
    is a pattern of modern TVM's door only."""
    disabled_ops: frozenset[str] = field(default_factory=frozenset)
    """Ops to leave to TVM wherever they stand: ``conv2d`` leaves out all convolutions."""
    exclude: frozenset[str] = field(default_factory=frozenset)
    """Names of model nodes to keep out."""
    keep: Path | None = None
    """Folder that receives the generated C and weights."""
    cache: Path | None = None
    """Compile cache; None: the user's cache folder."""
    cores: int = 0
    """Cores of the machine that runs the library, for which ``threads=0`` is planned; 0: those of the
    target."""
    l2_bytes: int = 0
    """L2 of one core of that machine; 0: that of the target."""

    def __post_init__(self) -> None:
        for name in ("disabled_patterns", "disabled_ops", "exclude"):
            object.__setattr__(self, name, read_names(name, getattr(self, name)))
        for name in ("keep", "cache"):
            object.__setattr__(self, name, _read_folder(name, getattr(self, name)))
        for name in ("strict", "merge"):
            value = getattr(self, name)
            if not isinstance(value, Hashable) or value not in (True, False):
                raise ConvoyError("options", name, f"expected True or False, got {value!r}", "correct it")
        for name, known, default in (
            ("accuracy", Accuracy, Options.accuracy),
            ("precision", Precision, Options.precision),
        ):
            value = getattr(self, name)
            if not isinstance(value, str) or value not in get_args(known):
                expected = f"expected one of {', '.join(get_args(known))}, got {value!r}"
                raise ConvoyError("options", name, expected, f"take {default}, the default")
        for name, most, what, remedy in _NUMBERS:
            value = getattr(self, name)
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not whole or not 0 <= value <= most:
                expected = f"expected a number of {what} up to {most}, got {value!r}"
                raise ConvoyError("options", name, expected, remedy)
        if not isinstance(self.tune, Real) or not self.tune >= 0:  # NaN is no number of seconds either
            raise ConvoyError(
                "options",
                "tune",
                f"expected a number of seconds, got {self.tune!r}",
                "take 0 for estimates in place of measurements",
            )


def _read_folder(option: str, value: Any) -> Path | None:
    try:
        return None if value is None else Path(value)
    except TypeError as problem:
        raise ConvoyError(
            "options", option, f"expected a path or None, got {value!r}", 'write "some/folder"'
        ) from problem


def read_names(option: str, value: Any) -> frozenset[str]:
    """Names as a set, or as one text with commas between them.

    Raises
    ------
    ConvoyError
        For anything else.
    """
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise ConvoyError(
            "options", option, f"expected names, got {value!r}", 'write {"a", "b"}, or "a,b" as text'
        )
    return frozenset(name.strip() for name in names) - {""}


def shape_option(name: str, sizes: Sequence[object]) -> str:
    """How a shell may say ``--shape`` of an input: its sizes, and likely ones where they are open."""
    images = [1, 224, 224, 3] if list(sizes[-1:]) in ([1], [3], [4]) else [1, 3, 224, 224]
    likely = images if len(sizes) == 4 else [1, *[16] * (len(sizes) - 1)]
    known = (size if isinstance(size, int) and size > 0 else None for size in sizes)
    shape = "x".join(str(size or other) for size, other in zip(known, likely, strict=False)) or "1"
    return f"--shape {quote(f'{name}={shape}')}"
