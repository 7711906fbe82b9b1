"""What Relay ops say about themselves, in one normal form: axes counted from 0, four-sided padding.

The checks of ``patterns`` and the tables of ``lowerings`` read attributes only through these.
"""

from __future__ import annotations

from tvm import ir, relay

from convoy.graph.builder import Span
from convoy.graph.ops import Pair, Sides
from convoy.offload import reasons
from convoy.relay.dataflow import constant, dims, rank


def from_zero(axis: int, ndim: int) -> int:
    """An axis that may count from the end, counted from the front."""
    return axis + ndim if axis < 0 else axis


def axes(call: relay.Call) -> tuple[int, ...]:
    """Axes of a reduction, sorted; all of them where the op names none."""
    ndim = rank(call.args[0])
    named = call.attrs.axis
    if named is None:
        return tuple(range(ndim))
    found = {from_zero(int(a), ndim) for a in named}
    return tuple(a for a in range(ndim) if (a in found) != bool(call.attrs.exclude))


def axis(call: relay.Call) -> int:
    """The one axis of concatenate, split, softmax, batch_norm, bias_add (of their data's rank)."""
    return from_zero(int(call.attrs.axis), len(_data_type(call).shape))


def _data_type(call: relay.Call) -> ir.TensorType:
    ty = call.args[0].checked_type
    return ty.fields[0] if isinstance(ty, ir.TupleType) else ty


def permutation(call: relay.Call) -> tuple[int, ...]:
    """Output axis i of transpose is input axis [i]; reversed where the op names none."""
    ndim = rank(call.args[0])
    if call.attrs.axes is None:
        return tuple(reversed(range(ndim)))
    return tuple(from_zero(int(a), ndim) for a in call.attrs.axes)


def pair(values: object) -> Pair:
    """Height and width of a stride, dilation or kernel; a 1-D op has height 1."""
    found = [int(v) for v in values]  # type: ignore[attr-defined]
    return (1, found[0]) if len(found) == 1 else (found[0], found[1])


def padding(call: relay.Call) -> Sides:
    """Top, left, bottom, right; a 1-D op has none above and below."""
    found = [int(v) for v in call.attrs.padding]
    if len(_data_type(call).shape) == 3:
        return (0, found[0], 0, found[-1])
    if len(found) == 4:
        return (found[0], found[1], found[2], found[3])
    return (found[0], found[-1], found[0], found[-1])


def pad_widths(call: relay.Call) -> tuple[Pair, ...]:
    """(before, after) of each axis of nn.pad."""
    return tuple((int(before), int(after)) for before, after in call.attrs.pad_width)


def slices(call: relay.Call) -> list[Span] | None:
    """The axes strided_slice cuts, clamped to the data; None where a bound is not a number."""
    attrs, shape = call.attrs, dims(call.args[0])
    if shape is None or len(call.args) > 1 or attrs.begin is None or attrs.end is None:
        return None
    begin, end = ([int(v) for v in bound] for bound in (attrs.begin, attrs.end))
    at = range(len(begin)) if attrs.axes is None else [from_zero(int(a), len(shape)) for a in attrs.axes]
    strides = [int(s) for s in attrs.strides] if attrs.strides is not None else [1]
    step = strides * len(begin) if len(strides) == 1 else strides
    found = []
    for i, a in enumerate(at):
        length = shape[a]
        if not isinstance(length, int):
            return None
        stop = end[i]
        if attrs.slice_mode == "size":
            # then `end` is a size, -1 the rest, and there are no steps
            stop = length if stop < 0 else from_zero(begin[i], length) + stop
            step[i] = 1
        found.append((a, *slice(begin[i], stop, step[i]).indices(length)))
    return found


def piece(call: relay.Call, index: int) -> Span:
    """Where output ``index`` of a split lies: axis, begin, end, 1."""
    at = axis(call)
    lengths = [int(field.shape[at]) for field in call.checked_type.fields]
    begin = sum(lengths[:index])
    return at, begin, begin + lengths[index], 1


def rounding(call: relay.Call) -> str | None:
    """How nearest resize2d picks a pixel; None for ways Convoy does not know."""
    return reasons.rounding(str(call.attrs.rounding_method), call.attrs.coordinate_transformation_mode)


def one_slope(call: relay.Call) -> float | None:
    """The slope of a prelu that has the same one for all channels."""
    slopes = constant(call.args[1])
    if slopes is None or slopes.size == 0 or (slopes != slopes.reshape(-1)[0]).any():
        return None
    return float(slopes.reshape(-1)[0])


RESHAPES = ("reshape", "squeeze", "expand_dims", "nn.batch_flatten", "copy", "annotation.stop_fusion")
"""Ops that keep the elements in their order."""
