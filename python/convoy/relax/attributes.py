"""What Relax ops say about themselves, in one normal form: axes counted from 0, four-sided padding.

The checks of ``patterns`` and the table of ``lower`` read attributes only through these.
"""

from __future__ import annotations

from collections.abc import Iterator

from tvm import relax

from convoy.graph.builder import Span
from convoy.graph.ops import Pair, Sides
from convoy.offload import reasons
from convoy.relax.dataflow import dims, numbers, op_name


def rank(expr: relax.Expr) -> int:
    """Axes of a tensor whose rank is known."""
    return int(expr.ty.ndim)


def from_zero(axis: int, ndim: int) -> int:
    """An axis that may count from the end, counted from the front."""
    return axis + ndim if axis < 0 else axis


def axes(call: relax.Call) -> tuple[int, ...]:
    """Axes of a reduction, sorted; all of them where the op names none."""
    ndim = rank(call.args[0])
    if call.attrs.axis is None:
        return tuple(range(ndim))
    return tuple(sorted(from_zero(int(a), ndim) for a in call.attrs.axis))


def axis(call: relax.Call) -> int:
    """The one axis of concat, split, softmax (of their output's rank)."""
    data = call.args[0].fields[0] if isinstance(call.args[0], relax.Tuple) else call.args[0]
    return from_zero(int(call.attrs.axis), rank(data))


def permutation(call: relax.Call) -> tuple[int, ...]:
    """Output axis i of permute_dims is input axis [i]; reversed where the op names none."""
    ndim = rank(call.args[0])
    if call.attrs.axes is None:
        return tuple(reversed(range(ndim)))
    return tuple(from_zero(int(a), ndim) for a in call.attrs.axes)


def pair(values: object) -> Pair:
    """Height and width of a stride, dilation or kernel; a 1-D op has height 1."""
    found = [int(v) for v in values]  # type: ignore[attr-defined]
    return (1, found[0]) if len(found) == 1 else (found[0], found[1])


def padding(values: object) -> Sides:
    """Top, left, bottom, right; a 1-D op has none above and below."""
    found = [int(v) for v in values]  # type: ignore[attr-defined]
    if len(found) == 2:
        return (0, found[0], 0, found[1])
    return (found[0], found[1], found[2], found[3])


def output_padding(call: relax.Call) -> Pair:
    """Rows and columns a transposed convolution adds at the bottom and the right."""
    found = [int(v) for v in call.attrs.output_padding]
    return (found[0], found[1])


def pad_widths(call: relax.Call) -> tuple[Pair, ...]:
    """(before, after) of each axis of nn.pad."""
    flat = [int(v) for v in call.attrs.pad_width]
    return tuple((flat[i], flat[i + 1]) for i in range(0, len(flat), 2))


def pixel_shuffle(call: relax.Call) -> int:
    return int(call.attrs.upscale_factor)


def slices(call: relax.Call) -> Iterator[Span] | None:
    """The axes strided_slice cuts, clamped to the data; None where a bound is not a number."""
    shape = dims(call.args[0])
    bounds = [numbers(arg) for arg in call.args[1:]]
    if shape is None or any(b is None for b in bounds):
        return None
    at, begin, end = bounds[0] or [], bounds[1] or [], bounds[2] or []
    step = bounds[3] if len(bounds) > 3 and bounds[3] else [1] * len(at)
    found = []
    for a, b, e, s in zip(at, begin, end, step, strict=True):
        a = from_zero(a, len(shape))
        length = shape[a]
        if not isinstance(length, int):
            return None
        b, e, s = slice(b, e, s).indices(length)
        found.append((a, b, e, s))
    return iter(found)


def piece(call: relax.Call, index: int) -> Span:
    """Where output ``index`` of a split lies: axis, begin, end, 1."""
    at = axis(call)
    begin = sum(_length(field, at) for field in list(call.ty.fields)[:index])
    return at, begin, begin + _length(call.ty.fields[index], at), 1


def rounding(call: relax.Call) -> str | None:
    """How nearest resize2d picks a pixel; None for ways Convoy does not know."""
    return reasons.rounding(str(call.attrs.rounding_method), call.attrs.coordinate_transformation_mode)


def epsilon(call: relax.Call) -> float:
    return float(call.attrs.epsilon)


def is_reshape(call: relax.Call) -> bool:
    """Does this op keep the elements in their order?"""
    return op_name(call) in RESHAPES


RESHAPES = ("reshape", "flatten", "expand_dims", "squeeze", "nn.batch_flatten")


def _length(ty: relax.TensorType, at: int) -> int:
    return int(ty.shape.values[at])
