"""Options the commands share, each described once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from convoy.options import Accuracy, Options, Precision

Model = Annotated[
    Path, typer.Argument(metavar="MODEL.onnx", help="ONNX file; external data is read beside it.")
]
Library = Annotated[Path, typer.Argument(metavar="MODEL.so", help="What convoy compile wrote.")]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="T",
        help="CPU to compile for, by LLVM's name: skylake-avx512, haswell, …  Default: this machine.",
    ),
]
Threads = Annotated[
    int,
    typer.Option(
        "--threads", min=0, metavar="N", help="Threads; 0: the physical cores of the machine that runs."
    ),
]
Hint = Literal["latency", "throughput"]
HintOption = Annotated[
    Hint,
    typer.Option(
        "--hint", help="latency: one run at a time, on all threads; throughput: a run on each core."
    ),
]
Pin = Annotated[bool, typer.Option("--pin", help="Keep each stream on a core of its own.")]
Cores = Annotated[
    int,
    typer.Option(
        "--cores", min=0, metavar="N", help="Cores of the machine that runs the library; 0: the target's."
    ),
]
L2 = Annotated[
    int, typer.Option("--l2", min=0, metavar="KB", help="L2 cache of one core of it; 0: the target's.")
]
_SHAPE = (
    "Fix the shape of a symbolic input, e.g. --shape data=1x3x224x224; a letter leaves its "
    "dimension open: data=Nx3x224x224; so does 0, and a network is tried with nothing there.  {}Repeatable."
)
_SEVERAL = (
    "Several sizes of a dimension, data=1x3x{320,640}x640, give one library with a version for each, "
    "picked at the call.  "
)
Shapes = Annotated[list[str] | None, typer.Option("--shape", metavar="NAME=SHAPE", help=_SHAPE.format(""))]
Sizes = Annotated[
    list[str] | None, typer.Option("--shape", metavar="NAME=SHAPE", help=_SHAPE.format(_SEVERAL))
]
Strict = Annotated[
    bool, typer.Option("--strict", help="Fail, with the reason, if any op cannot be offloaded.")
]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Keep the generated C and weights in this folder."),
]
Disabled = Annotated[
    list[str] | None,
    typer.Option(
        "--disable",
        metavar="NAME",
        help="Leave an op to TVM wherever it stands (conv2d, nn.softmax), or switch off one pattern alone: "
        "without convoy.conv2d_relu, a conv2d and its relu are taken as two.  Repeatable.",
    ),
]
Excluded = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="NODE", help="Leave one node of the model to TVM; repeatable."),
]
AccuracyOption = Annotated[
    Accuracy,
    typer.Option(
        "--accuracy",
        help="fastest: Winograd convolutions where they are faster (error of each below 5e-5 of its "
        "largest output); fast: with smaller tiles only (below 1e-5); direct: never.",
    ),
]
PrecisionOption = Annotated[
    Precision,
    typer.Option(
        "--precision",
        help="bf16: weights, maps and products in bfloat16 where that pays, sums in float32; on a CPU "
        "without instructions for it float32.",
    ),
]
Tune = Annotated[
    float,
    typer.Option(
        "--tune",
        min=0,
        metavar="SECONDS",
        help="Measure, for at most so long, how to compute each convolution; kept for the next time.",
    ),
]
NoMerge = Annotated[
    bool, typer.Option("--no-merge", help="One external function per pattern, such as conv2d + add + relu.")
]

Html = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="OUT.html", help="Write it as a page, too: one file, which needs no network."
    ),
]

_SIZE = "(?=0*[1-9])[0-9]{1,18}"
_PART = re.compile(rf"[A-Za-z]|[0-9]{{1,18}}|\{{\s*{_SIZE}(\s*,\s*{_SIZE})*\s*\}}")
"""A dimension of ``--shape``: its size, 0 or not; a letter, where it stays open; or several in braces."""
_BETWEEN = re.compile(r"[x,](?![^{]*\})")
"""What separates dimensions: no comma in braces."""


def parse_shapes(given: Sequence[str] | None) -> dict[str, tuple[int | None, ...]]:
    """``["data=Nx3x224x224"]`` → ``{"data": (None, 3, 224, 224)}``; commas separate as well.

    Raises
    ------
    typer.BadParameter
        If an entry has another form.
    """
    shapes: dict[str, tuple[int | None, ...]] = {}
    for name, sizes in parse_sizes(given).items():
        if any(isinstance(size, tuple) for size in sizes):
            raise typer.BadParameter(
                f"expected one size of each dimension, got several of {name}; "
                "only convoy compile and convoy check take {…}"
            )
        shapes[name] = tuple(size for size in sizes if not isinstance(size, tuple))
    return shapes


def parse_sizes(given: Sequence[str] | None) -> dict[str, tuple[int | tuple[int, ...] | None, ...]]:
    """As ``parse_shapes``, and ``["data=1x{3,4}"]`` → ``{"data": (1, (3, 4))}``.

    Raises
    ------
    typer.BadParameter
        If an entry has another form, or an input has two.
    """
    shapes = {}
    for text in given or ():
        name, equals, sizes = text.rpartition("=")
        parts = [part.strip() for part in _BETWEEN.split(sizes)]
        if not (name and equals and all(_PART.fullmatch(part) for part in parts)):
            raise typer.BadParameter(
                f"expected NAME=SIZExSIZE…, got {text!r}; write e.g. --shape data=1x3x224x224"
            )
        if name in shapes:
            raise typer.BadParameter(f"expected one shape of {name}, got two; leave one --shape out")
        shapes[name] = tuple(_read_part(part) for part in parts)
    return shapes


def _read_part(part: str) -> int | tuple[int, ...] | None:
    if part.startswith("{"):
        return tuple(int(size) for size in part[1:-1].split(","))
    return int(part) if part.isdigit() else None


def make_options(
    *,
    threads: int = 0,
    strict: bool = False,
    keep: Path | None = None,
    disabled: Sequence[str] | None = None,
    excluded: Sequence[str] | None = None,
    no_merge: bool = False,
    accuracy: Accuracy = Options.accuracy,
    precision: Precision = "float32",
    tune: float = 0.0,
    cores: int = 0,
    l2_kilobytes: int = 0,
) -> Options:
    """The compiler's options from those of the command line."""
    names = disabled or ()
    return Options(
        threads=threads,
        strict=strict,
        merge=not no_merge,
        accuracy=accuracy,
        precision=precision,
        tune=tune,
        disabled_patterns=frozenset(name for name in names if name.startswith("convoy.")),
        disabled_ops=frozenset(name for name in names if not name.startswith("convoy.")),
        exclude=frozenset(excluded or ()),
        keep=keep,
        cores=cores,
        l2_bytes=l2_kilobytes << 10,
    )
