"""Why an op is not taken, in words that suit any op; those of one op stand beside its row (``ops/``)."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from math import prod

from convoy.errors import ConvoyError
from convoy.graph.builder import FIX_SHAPE
from convoy.graph.sizes import Size


def no_kernel(op: str) -> str:
    return f"Convoy has no kernel for {op}"


def pattern_off(pattern: str) -> str:
    return f"pattern {pattern} is switched off"


def not_constant(what: str, *, parameter: bool) -> str:
    got = "a parameter; bind it" if parameter else "a run-time value"
    return f"expected a constant {what}, got {got}"


MOST_ELEMENTS = 2**31 - 1
"""The most elements of a tensor: kernels count rows and pixels in C's int."""


def tensor(
    dtype: str,
    lengths: Sequence[object] | None,
    images: int = 0,
    *,
    open_sizes: bool = False,
    dtypes: Set[str] = frozenset({"float32"}),
) -> str | None:
    """A kernel's operands and results are of these types, of known length but along the images' axis.

    With ``open_sizes``, others are computed at the call.
    """
    if dtype not in dtypes:
        given, wanted = dtype or "an unknown dtype", " or ".join(sorted(dtypes))
        return (
            f"expected float32, got {given}" if wanted == "float32" else f"expected {wanted}, got {given}"
        )
    if lengths is None:
        return f"expected a known shape, got an unknown one; {FIX_SHAPE}"
    for at, length in enumerate(lengths):
        if at != images and not isinstance(length, int) and not (open_sizes and isinstance(length, Size)):
            return f"expected axis {at} of known length, got {show_length(length)}; {FIX_SHAPE}"
        if isinstance(length, int) and length < 1:
            return f"expected something to compute, got the empty shape {list(lengths)}"
    found = prod(length for length in lengths if isinstance(length, int))  # sizes of a call may be small
    if found > MOST_ELEMENTS:
        return f"expected at most {MOST_ELEMENTS} elements, got {found}"
    return None


def show_length(length: object) -> str:
    """A length without the types that TVM writes into expressions: ``h // T.int64(2)`` is ``h // 2``."""
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", repr(length) if isinstance(length, Size) else str(length))


ONLY_CONSTANTS = "expected an operand known only at run time, got constants; FoldConstant computes it"
OPEN_CONSTANTS = "expected an operand known only at run time, got constants and a size that a call tells"
SCALAR = "expected at least one axis, got a scalar"
CONSTANT_BESIDE = "expected computed operands, got a constant beside them"
TUPLE_AS_WHOLE = "expected its items to be used one by one, got the tuple used as a whole"
SEVERAL_BATCHES = (
    "expected operands of one number of images, got several numbers known only at run time, which may"
    " differ; fix the shapes of all inputs but one"
)
UNSEEN = "expected an op in dataflow, got one in a match, by a reference or in a function not to be opened"
IN_BRANCH = "expected an op of the function itself, got one in a branch; make the branch a function"
IN_LOCAL = "expected an op of a global function, got one of a function inside another; run LambdaLift"
BOUND = "expected dataflow, got lets, or values that a function written inside uses; pass them to it"
OTHER_ITEMS = "expected only its first item to be used, got others"
OTHER_READING = "expected axis 0 read as in this cut, got an op of another one"
"""While several are made: not what becomes of the op."""


def images_along_axis_zero(shapes: Sequence[Sequence[object]]) -> str:
    found = ", ".join(f"[{', '.join(map(show_length, shape))}]" for shape in shapes)
    known = all(isinstance(length, int) for shape in shapes for length in shape)
    remedy = "take one image, with which an op may do anything to axis 0" if known else FIX_SHAPE
    return f"expected the images along axis 0 of every operand, got {found}; {remedy}"


def in_words(said: object) -> str | None:
    """What the ``refuse`` of a backend said: a reason, or nothing.

    Raises
    ------
    ConvoyError
        For anything else.
    """
    if said and not isinstance(said, str):
        problem = f"expected a reason in words or None, got {said!r}"
        raise ConvoyError("annotate", "refuse", problem, "return a text, such as 'no kernel for it'")
    return said or None  # type: ignore[return-value]
