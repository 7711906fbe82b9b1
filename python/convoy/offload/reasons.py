"""Why an op is not taken, in words: each function returns the reason, or None.

They are made from plain data, or from the attributes of an op, which both TVMs call alike.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from convoy.errors import ConvoyError
from convoy.graph.builder import FIX_SHAPE
from convoy.graph.ops import Pair, Sides
from convoy.graph.shapes import find_blind_window
from convoy.offload.attributes import pair
from convoy.offload.work import elements


def no_kernel(op: str) -> str:
    return f"Convoy has no kernel for {op}"


def pattern_off(pattern: str) -> str:
    return f"pattern {pattern} is switched off"


def not_constant(what: str, *, parameter: bool) -> str:
    got = "a parameter; bind it" if parameter else "a run-time value"
    return f"expected a constant {what}, got {got}"


MOST_ELEMENTS = 2**31 - 1
"""The most elements of a tensor: kernels count rows and pixels in C's int."""


def tensor(dtype: str, lengths: Sequence[object] | None) -> str | None:
    """A kernel's operands and results are float32, of known length but for that of the images."""
    if dtype != "float32":
        return f"expected float32, got {dtype or 'an unknown dtype'}"
    if lengths is None:
        return f"expected a known shape, got an unknown one; {FIX_SHAPE}"
    for at, length in enumerate(lengths):
        if at and not isinstance(length, int):
            return f"expected axis {at} of known length, got {_length(length)}; {FIX_SHAPE}"
        if isinstance(length, int) and length < 1:
            return f"expected something to compute, got the empty shape {list(lengths)}"
    if (found := elements(lengths)) > MOST_ELEMENTS:
        return f"expected at most {MOST_ELEMENTS} elements, got {found}"
    return None


def _length(length: object) -> str:
    """A length without the types that TVM writes into expressions: ``h // T.int64(2)`` is ``h // 2``."""
    return re.sub(r"T\.int64\((-?\d+)\)", r"\1", str(length))


ONLY_CONSTANTS = "expected an operand known only at run time, got constants; FoldConstant computes it"
SCALAR = "expected at least one axis, got a scalar"
CONSTANT_BESIDE = "expected computed operands, got a constant beside them"
TRAINING = "expected inference, got training=True, which uses the statistics of the batch"
UNKNOWN_BOUNDS = "expected bounds that are numbers, got expressions"
TUPLE_AS_WHOLE = "expected its items to be used one by one, got the tuple used as a whole"
SEVERAL_BATCHES = (
    "expected operands of one number of images, got several numbers known only at run time, which may"
    " differ; fix the shapes of all inputs but one"
)
UNSEEN = "expected an op in dataflow, got one in a match, a reference or a function made primitive before"
IN_BRANCH = "expected an op of the function itself, got one in a branch; make the branch a function"
BOUND = "expected dataflow, got lets, or values that a function written inside uses; pass them to it"
OTHER_ITEMS = "expected only its first item to be used, got others"


def images_along_axis_zero(shapes: Sequence[Sequence[object]]) -> str:
    found = ", ".join(f"[{', '.join(map(_length, shape))}]" for shape in shapes)
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


TURNED = "fold's normalize_layout turns it"
TURN_IT = "write the op in that layout, with a transpose before and after it"


def layouts(
    data: str, expected: str, out: str = "", kernel: str = "", weight: str = "", *, remedy: str = TURNED
) -> str | None:
    """The layouts an op has, against those its kernel needs: of data, output and weight.

    Parameters
    ----------
    remedy : str
        What to do about data in another layout.
    """
    if data != expected:
        return f"expected data in {expected}, got {data}; {remedy}"
    if out not in ("", expected):
        return f"expected an output in {expected}, got {out}"
    if kernel != weight:
        return f"expected a weight in {weight}, got {kernel}"
    return None


def permutation(source: str, wanted: str) -> str | None:
    """A layout_transform may move axes, but not split them into blocks, as between NCHW and NCHW16c."""
    if sorted(source) == sorted(wanted) and source.isalpha():
        return None
    return f"expected layouts of the same axes, got {source} and {wanted}"


def padding(sides: Sequence[object]) -> str | None:
    found = [int(side) for side in sides]  # type: ignore[call-overload]
    return f"expected padding that is not negative, got {found}" if min(found, default=0) < 0 else None


def convolution(attrs: Any, data: str, weight: str, *, remedy: str = TURNED) -> str | None:
    """A convolution needs these layouts."""
    given = (attrs.data_layout, data, attrs.out_layout, attrs.kernel_layout, weight)
    found = layouts(*given, remedy=remedy)
    return found or padding(attrs.padding)


def filters(channels: object, weight: Sequence[object], groups: int) -> str | None:
    """A weight has its filters along axis 0; Relay allows [C, M, kh, kw] for M filters a channel, too."""
    if not isinstance(channels, int) or weight[1] == channels // groups:
        return None
    found = f"expected a weight of {channels // groups} input channels a group, got {weight[1]}"
    return f"{found}; fold's normalize_layout reshapes it"


def pool(
    attrs: Any,
    data: str,
    size: Sequence[int],
    windows: Sequence[int],
    sides: Sides,
    *,
    padded: bool,
    remedy: str = TURNED,
) -> str | None:
    """A pool on windows needs this layout, and a pixel in every window.

    Parameters
    ----------
    size, windows : Sequence[int]
        Lengths of the data's and the result's axes behind the channels.
    sides : Sides
        Its padding.
    padded : bool
        It counts its padding.
    remedy : str
        What to do about data in another layout.
    """
    given = (attrs.layout, data, attrs.out_layout)
    if (reason := layouts(*given, remedy=remedy) or padding(attrs.padding)) is not None:
        return reason
    kernel, stride, dilation = pair(attrs.pool_size), pair(attrs.strides), pair(attrs.dilation)
    blind = find_blind_window(pair(size), pair(windows), kernel, stride, dilation, sides, padded)
    return None if blind is None else f"expected a pixel in every window, got none in window {blind}"


def adaptive_pool(size: Pair, output: Pair) -> str | None:
    (height, width), (rows, columns) = size, output
    if height % rows or width % columns:
        return f"expected an output that divides {height}x{width}, got {rows}x{columns}"
    return None


def matmul(axes: int) -> str | None:
    return None if axes == 2 else f"expected a weight of shape [K, N], got {axes} axes"


def norm(channel_axis: int, axes: Sequence[int], ndim: int) -> str | None:
    """A group or instance norm needs channels on axis 1, and the mean over all behind it."""
    if channel_axis == 1 and tuple(axes) == tuple(range(2, ndim)):
        return None
    found = f"axis {channel_axis} and {list(axes)}"
    return f"expected channels on axis 1 and means over all axes behind, got {found}"


def pad(mode: str, widths: Sequence[Pair]) -> str | None:
    if mode != "constant":
        return f"expected constant padding, got {mode}"
    if min(min(width) for width in widths) < 0:
        return "expected padding that is not negative, got a crop"
    return None


def bounds(found: tuple[float, float] | None) -> str | None:
    """Between which a clip keeps its data."""
    if found is None:
        return UNKNOWN_BOUNDS
    low, high = found
    return None if low <= high else f"expected bounds in ascending order, got {low:g} and {high:g}"


def steps(found: Sequence[int]) -> str | None:
    return "expected positive steps, got a negative one" if any(step < 1 for step in found) else None
