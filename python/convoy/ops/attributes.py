"""Attributes in one normal form, from plain data: axes counted from 0, four-sided padding, spans."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from numpy.typing import NDArray

from convoy.graph.builder import Span
from convoy.graph.ops import Pair, Sides
from convoy.graph.sizes import Size, always_before, hint, is_open


def from_zero(axis: int, ndim: int) -> int:
    """An axis that may count from the end, counted from the front."""
    return axis + ndim if axis < 0 else axis


def permutation(axes: Iterable[Any] | None, ndim: int) -> tuple[int, ...]:
    """Output axis i of a transposition is input axis [i]; reversed where the op names none."""
    if axes is None:
        return tuple(reversed(range(ndim)))
    return tuple(from_zero(int(a), ndim) for a in axes)


def pair(values: Iterable[Any]) -> Pair:
    """Height and width of a stride, dilation or kernel; a 1-D op has height 1."""
    found = [int(v) for v in values]
    return (1, found[0]) if len(found) == 1 else (found[0], found[1])


def sides(padding: Iterable[Any], ndim: int) -> Sides:
    """Top, left, bottom, right, for data of so many axes; a 1-D op has none above and below."""
    found = [int(v) for v in padding]
    if ndim == 3:
        return (0, found[0], 0, found[-1])
    if len(found) == 4:
        return (found[0], found[1], found[2], found[3])
    return (found[0], found[-1], found[0], found[-1])


def image_sides(lengths: Sequence[int]) -> Pair:
    """Height and width of what lies behind the channels; data of a 1-D op have height 1."""
    return (1, lengths[0]) if len(lengths) == 1 else (lengths[0], lengths[1])


def elements(shape: Sequence[object]) -> int:
    """Elements of a tensor; one known at the call counts as is likely, one that is not known as 1."""
    return prod(hint(length) if isinstance(length, int | Size) else 1 for length in shape)


UNKNOWN_BOUNDS = "expected bounds that lie within the data at every call, got others"

WHOLE = 2**31 - 1
"""An end from here on is that of the axis, however long."""


def spans(
    shape: Sequence[object],
    axes: Sequence[int],
    begin: Sequence[int],
    end: Sequence[int],
    steps: Sequence[int],
) -> list[Span] | None:
    """The axes a slice cuts, within the data.

    None where one of those is of unknown length, or a bound is not known to lie within it at every call.
    """
    found = []
    for axis, b, e, step in zip(axes, begin, end, steps, strict=True):
        length = shape[axis]
        whole = b == 0 and step == 1
        if whole and (e == length or (isinstance(e, int) and e >= WHOLE)):
            continue
        if isinstance(length, int) and not is_open((b, e)):
            if not whole or e < length:
                found.append((axis, *slice(b, e, step).indices(length)))
        elif isinstance(length, int | Size):
            span = _open_span(length, b, e) if step > 0 else _open_span_backwards(length, b, e)
            if span is None:
                return None
            found.append((axis, *span, step))
        else:
            return None
    return found


def _open_span(length: int, begin: int, end: int) -> tuple[int, int] | None:
    """From where to where a slice cuts an axis; None where that is not the same rule at every call."""
    if isinstance(end, int) and end >= WHOLE:
        end = length
    begin, end = (length + at if isinstance(at, int) and at < 0 else at for at in (begin, end))
    ordered = always_before(0, begin) and always_before(begin + 1, end) and always_before(end, length)
    return (begin, end) if ordered else None


def _open_span_backwards(length: int, begin: int, end: int) -> tuple[int, int] | None:
    """The same of a slice whose step is negative; in what is returned -1 is in front of the axis."""
    if isinstance(begin, int) and begin >= WHOLE:
        begin = length - 1
    if isinstance(end, int) and end <= -WHOLE:
        end = -length - 1
    begin, end = (length + at if always_before(at, -1) else at for at in (begin, end))
    ordered = always_before(-1, end) and always_before(end + 1, begin) and always_before(begin + 1, length)
    return (begin, end) if ordered else None


def piece(axis: int, lengths: Sequence[int], index: int) -> Span:
    """Where output ``index`` of a split into these lengths lies."""
    begin = sum(lengths[:index])
    return axis, begin, begin + lengths[index], 1


def is_leaky(slopes: NDArray[Any]) -> bool:
    """Are the slopes of a PReLU one number, as a leaky ReLU has it?"""
    return bool((slopes == slopes.reshape(-1)[0]).all())
