"""What Relay ops say about themselves, in one normal form: axes counted from 0, four-sided padding.

For what takes more than reading a field; the rows of ``convoy/ops`` read the others themselves.
"""

from __future__ import annotations

from typing import get_args

from tvm import ir, relay

from convoy.errors import LoweringError
from convoy.graph.builder import Span
from convoy.graph.ops import PadMode, Pair, Sides
from convoy.ops import attributes
from convoy.ops.attributes import from_zero
from convoy.ops.moves import check_permutation
from convoy.relay.dataflow import constant, dims, op_name, rank


def axes(call: relay.Call) -> tuple[int, ...]:
    """Axes of a reduction, sorted; all of them where the op names none."""
    ndim = rank(call.args[0])
    named = call.attrs.axis
    if named is None:
        return tuple(range(ndim))
    found = {from_zero(int(a), ndim) for a in named}
    return tuple(a for a in range(ndim) if (a in found) != bool(call.attrs.exclude))


def axis(call: relay.Call) -> int:
    """The one axis of concatenate, split, take, softmax, prelu and the norms; 0 where all are one."""
    data = call.args[0].checked_type
    first = data.fields[0] if isinstance(data, ir.TupleType) else data
    return from_zero(int(call.attrs.axis or 0), len(first.shape))


def norm_axes(call: relay.Call) -> tuple[int, ...]:
    """Axes over which a layer, group or instance norm takes the mean, sorted."""
    return (axis(call),) if op_name(call) == "nn.layer_norm" else tuple(range(2, rank(call.args[0])))


def permutation(call: relay.Call) -> tuple[int, ...]:
    """Output axis i of transpose, or of a layout_transform that only moves axes, is input axis [i].

    Raises
    ------
    LoweringError
        For any other layout_transform, which a pass put into a region.
    """
    if op_name(call) == "layout_transform":
        source, wanted = str(call.attrs.src_layout), str(call.attrs.dst_layout)
        if problem := check_permutation(source, wanted):
            remedy = "keep TVM's passes out of regions with convoy.relay.no_touch"
            raise LoweringError("lower", op_name(call), problem, remedy)
        return tuple(map(source.index, wanted))
    return attributes.permutation(call.attrs.axes, rank(call.args[0]))


def padding(call: relay.Call) -> Sides:
    """Top, left, bottom, right."""
    return attributes.sides(call.attrs.padding, rank(call.args[0]))


def pad_widths(call: relay.Call) -> tuple[Pair, ...]:
    """(before, after) of each axis of nn.pad."""
    return tuple((int(before), int(after)) for before, after in call.attrs.pad_width)


def pad_mode(call: relay.Call) -> PadMode | None:
    """How nn.pad and nn.mirror_pad pad."""
    named = call.attrs.mode.lower() if op_name(call) == "nn.mirror_pad" else str(call.attrs.pad_mode)
    return next((mode for mode in get_args(PadMode) if mode == named), None)


def pad_value(call: relay.Call) -> float | None:
    """What nn.pad puts around its data; None if it is no one number."""
    value = constant(call.args[1]) if len(call.args) > 1 else None
    return None if value is None or value.size != 1 else float(value.reshape(()))


def slices(call: relay.Call) -> list[Span] | None:
    """The axes strided_slice cuts, clamped to the data; None where a bound is not a number."""
    attrs, shape = call.attrs, dims(call.args[0])
    if shape is None or len(call.args) > 1 or attrs.begin is None or attrs.end is None:
        return None
    axes = range(len(shape)) if attrs.axes is None else attrs.axes
    named = [from_zero(int(axis), len(shape)) for axis in axes]
    missing = (attrs.begin, 0), (attrs.end, attributes.WHOLE), (attrs.strides or [], 1)
    begin, end, steps = (
        [*map(int, bounds), *[otherwise] * (len(named) - len(bounds))] for bounds, otherwise in missing
    )
    if attrs.slice_mode == "size":
        # then `end` holds sizes, -1 for the rest, and there are no steps
        steps = [1] * len(named)
        for i, a in enumerate(named):
            length = shape[a]
            if end[i] < 0:
                end[i] = attributes.WHOLE
            elif isinstance(length, int):
                end[i] += from_zero(begin[i], length)
            else:
                return None
    return attributes.spans(shape, named, begin, end, steps)


def piece(call: relay.Call, index: int) -> Span:
    """Where output ``index`` of a split lies: axis, begin, end, 1."""
    at = axis(call)
    return attributes.piece(at, [int(field.shape[at]) for field in call.checked_type.fields], index)


def bounds(call: relay.Call) -> tuple[float, float]:
    """Between which clip keeps its data."""
    return float(call.attrs.a_min), float(call.attrs.a_max)
