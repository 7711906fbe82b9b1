"""What Relax ops say about themselves, in one normal form: axes counted from 0, four-sided padding.

For what takes more than reading a field; the rows of ``convoy/ops`` read the others themselves.
"""

from __future__ import annotations

from tvm import relax

from convoy.graph.builder import Span
from convoy.graph.ops import PadMode, Pair, Sides
from convoy.ops import attributes
from convoy.ops.attributes import from_zero
from convoy.relax.dataflow import dims, number, numbers, rank


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


def slices(call: relax.Call) -> list[Span] | None:
    """The axes strided_slice cuts, clamped to the data; None where a bound is not a number."""
    shape = dims(call.args[0])
    bounds = [numbers(arg) for arg in call.args[1:]]
    if shape is None or any(b is None for b in bounds):
        return None
    named, begin, end = bounds[0] or [], bounds[1] or [], bounds[2] or []
    steps = bounds[3] if len(bounds) > 3 and bounds[3] else [1] * len(named)
    return attributes.spans(shape, [from_zero(a, len(shape)) for a in named], begin, end, steps)


def piece(call: relax.Call, index: int) -> Span:
    """Where output ``index`` of a split lies: axis, begin, end, 1."""
    at = axis(call)
    fields = list(call.ty.fields)[: index + 1]
    return attributes.piece(at, [int(field.shape.values[at]) for field in fields], index)


def bounds(call: relax.Call) -> tuple[float, float] | None:
    """Between which clip keeps its data; None where one is not a number."""
    low, high = (number(arg) for arg in call.args[1:])
    return None if low is None or high is None else (float(low), float(high))
