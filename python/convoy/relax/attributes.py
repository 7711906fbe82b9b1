"""What Relax ops say about themselves, in one normal form: axes counted from 0, four-sided padding.

For what takes more than reading a field; the rows of ``convoy/ops`` read the others themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from tvm import relax

from convoy.graph.builder import Span
from convoy.graph.ops import PadMode, Pair, Sides
from convoy.ops import attributes
from convoy.ops.attributes import from_zero
from convoy.relax.dataflow import dims, number, numbers, rank
from convoy.relax.sizes import Dim


def number_of(length: Dim) -> int | None:
    """The number a bound or a length is; None for an expression."""
    found = length if isinstance(length, int) else number(length)
    return None if found is None else int(found)


def axes(call: relax.Call) -> tuple[int, ...]:
    """Axes of a reduction, sorted; all of them where the op names none."""
    ndim = rank(call.args[0])
    if call.attrs.axis is None:
        return tuple(range(ndim))
    return tuple(sorted(from_zero(int(a), ndim) for a in call.attrs.axis))


def axis(call: relax.Call) -> int:
    """The one axis of concat, split, take, softmax, prelu and the norms; 0 where all are one."""
    data = call.args[0].fields[0] if isinstance(call.args[0], relax.Tuple) else call.args[0]
    named = call.attrs.channel_axis if hasattr(call.attrs, "channel_axis") else call.attrs.axis
    return from_zero(int(named or 0), rank(data))


def norm_axes(call: relax.Call) -> tuple[int, ...]:
    """Axes over which a layer, group or instance norm takes the mean, sorted."""
    ndim = rank(call.args[0])
    return tuple(sorted(from_zero(int(a), ndim) for a in call.attrs.axes))


def permutation(call: relax.Call) -> tuple[int, ...]:
    """Output axis i of permute_dims is input axis [i]."""
    return attributes.permutation(call.attrs.axes, rank(call.args[0]))


def padding(call: relax.Call) -> Sides:
    """Top, left, bottom, right."""
    return attributes.sides(call.attrs.padding, rank(call.args[0]))


def pad_widths(call: relax.Call) -> tuple[Pair, ...]:
    """(before, after) of each axis of nn.pad."""
    flat = [int(v) for v in call.attrs.pad_width]
    return tuple((flat[i], flat[i + 1]) for i in range(0, len(flat), 2))


PAD_MODES: dict[str, PadMode] = {
    "constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap",
}  # fmt: skip
"""What Relax calls the ways to pad."""


def pad_mode(call: relax.Call) -> PadMode | None:
    """How nn.pad pads; None for a name that TVM takes for another."""
    return PAD_MODES.get(str(call.attrs.pad_mode))


def pad_value(call: relax.Call) -> float:
    """What nn.pad puts around its data."""
    return float(call.attrs.pad_value)


def slices(call: relax.Call, size: Callable[[Dim], int | None] = number_of) -> list[Span] | None:
    """The axes strided_slice cuts, within the data.

    None where a bound is neither a number nor, by ``size``, one known at the call.
    """
    shape = dims(call.args[0])
    named, *steps = (numbers(arg) for arg in (call.args[1], *call.args[4:]))
    begin, end = (
        [size(bound) for bound in (arg.fields if isinstance(arg, relax.Tuple) else arg.values)]
        for arg in call.args[2:4]
    )
    if shape is None or named is None or None in steps or None in begin or None in end:
        return None
    lengths = [length if (known := size(length)) is None else known for length in shape]
    strides = steps[0] if steps and steps[0] else [1] * len(named)
    at = [from_zero(axis, len(shape)) for axis in named]
    return attributes.spans(lengths, at, cast("list[int]", begin), cast("list[int]", end), strides)


def piece(call: relax.Call, index: int) -> Span:
    """Where output ``index`` of a split lies: axis, begin, end, 1."""
    at = axis(call)
    fields = list(call.ty.fields)[: index + 1]
    return attributes.piece(at, [int(field.shape.values[at]) for field in fields], index)


def bounds(call: relax.Call) -> tuple[float, float] | None:
    """Between which clip keeps its data; None where one is not a number."""
    low, high = (number(arg) for arg in call.args[1:])
    return None if low is None or high is None else (float(low), float(high))
