"""What moves, cuts, pads or renames elements, and computes none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from convoy.graph.ops import Binary, Concat, Pad, Transpose
from convoy.graph.shapes import widest_pad
from convoy.graph.sizes import is_open
from convoy.ops.attributes import UNKNOWN_BOUNDS
from convoy.ops.layouts import layouts, remedy
from convoy.ops.operands import Operands
from convoy.ops.reader import Call, Reader
from convoy.ops.row import OpRow

MOST_RUNS = 16
"""The most slices that one ``take`` becomes."""


def runs(indices: Sequence[int]) -> list[tuple[int, int, int]]:
    """Indices as slices, each begin, end and step, backwards where the step is negative.

    >>> runs([0, 2, 4, 4, 3])
    [(0, 5, 2), (4, 2, -1)]
    """
    found: list[tuple[int, int, int]] = []
    at = 0
    while at < len(indices):
        begin, last = at, at
        step = (indices[at + 1] - indices[at] if at + 1 < len(indices) else 1) or 1
        while last + 1 < len(indices) and indices[last + 1] - indices[last] == step:
            last += 1
        found.append((indices[begin], indices[last] + (1 if step > 0 else -1), step))
        at = last + 1
    return found


# Checks --------------------------------------------------------------------------------------------


def _check_elements(at: Reader, call: Call) -> str | None:
    """A reshape keeps its elements, at every call."""
    before, after = (at.elements(of) for of in (call.args[0], call))
    if before is None or after is None or before == after:
        return None
    return f"expected as many elements at every call, got {before!r} and {after!r}"


def _check_sides(at: Reader, call: Call) -> str | None:
    """What stands side by side has equal lengths along other axes, at every call."""
    shapes = [tensor.dims or () for tensor in at.reads(call)]
    axis = at.attributes.axis(call)
    for other in range(1, len(shapes[0])):
        found = list(dict.fromkeys(at.size(shape[other]) for shape in shapes))
        if other != axis and len(found) > 1 and is_open(tuple(found)):
            return f"expected lengths that are equal at every call along axis {other}, got {found}"
    return None


def _check_pieces(at: Reader, call: Call) -> str | None:
    axis = at.attributes.axis(call)
    opens = is_open(tuple((at.dims(call.args[0]) or ())[axis : axis + 1]))
    return f"expected a cut of an axis of known length, got axis {axis}" if opens else None


def _check_written_out(at: Reader, call: Call) -> str | None:
    if not hasattr(call.args[0], "fields"):
        return "expected its operands written out, got a named tuple; run CanonicalizeBindings"
    return None


def _check_layout_transform(at: Reader, call: Call) -> str | None:
    return check_permutation(str(call.attrs.src_layout), str(call.attrs.dst_layout))


def check_permutation(source: str, wanted: str) -> str | None:
    """A layout_transform may move axes, but not split them into blocks, as between NCHW and NCHW16c."""
    if sorted(source) == sorted(wanted) and source.isalpha():
        return None
    return f"expected layouts of the same axes, got {source} and {wanted}"


def _check_strided_slice(at: Reader, call: Call) -> str | None:
    return UNKNOWN_BOUNDS if at.slices(call) is None else None


def _check_take(at: Reader, call: Call) -> str | None:
    if call.attrs.axis is None or int(getattr(call.attrs, "batch_dims", 0)):
        return "expected one axis to take from, got none, or an index a batch"
    length = (at.dims(call.args[0]) or ())[at.attributes.axis(call)]
    indices = at.constant(call.args[1])
    assert indices is not None, "checked before"
    if not (indices >= 0).all() or (isinstance(length, int) and not (indices < length).all()):
        last = length - 1 if isinstance(length, int) else "the last"
        return f"expected indices from 0 to {last}, got others"
    count = len(runs(indices.reshape(-1).tolist()))
    return None if count <= MOST_RUNS else f"expected at most {MOST_RUNS} slices, got indices of {count}"


def _check_pad(at: Reader, call: Call) -> str | None:
    mode, widths = at.attributes.pad_mode(call), at.attributes.pad_widths(call)
    if mode is None:
        return f"expected constant padding, got {call.attrs.pad_mode}"
    if mode == "constant" and at.attributes.pad_value(call) is None:
        return "expected a constant padding value, got several"
    if min(min(width) for width in widths) < 0:
        return "expected padding that is not negative, got a crop"
    for length, width in zip(at.dims(call.args[0]) or (), widths, strict=True):
        if max(width) > 0 and isinstance(length, int) and max(width) > widest_pad(length, mode):
            return f"expected padding of at most {widest_pad(length, mode)} by {mode}, got {max(width)}"
    return None


def _check_broadcast(at: Reader, call: Call) -> str | None:
    """What is repeated is so a known number of times; sizes of a call stay as they are."""
    before, after = at.dims(call.args[0]) or (), at.dims(call) or ()
    own = (1,) * (len(after) - len(before)) + tuple(before)
    for axis, (given, wanted) in enumerate(zip(own, after, strict=True)):
        given, wanted = at.size(given), at.size(wanted)
        if given != wanted and is_open((given, wanted)):
            return f"expected axis {axis} repeated a known number of times, got {wanted!r} of {given!r}"
    return None


def _check_depth_to_space(at: Reader, call: Call) -> str | None:
    return layouts(call.attrs.layout, "NCHW", remedy=remedy(at, call))


# Lowerings -----------------------------------------------------------------------------------------


def _lower_reshape(at: Operands, call: Call) -> str:
    return at.build.reshape(at.tensor(call.args[0]), at.shape(call))


def _lower_dropout(at: Operands, call: Call, item: int) -> str:
    return at.build.reshape(at.tensor(call.args[0]), at.shape(call.args[0]))


def _lower_transpose(at: Operands, call: Call) -> str:
    lifted = at.axes(at.attributes.permutation(call))
    return at.node(Transpose, call, perm=(*range(at.build.lift), *lifted))


def _lower_concat(at: Operands, call: Call) -> str:
    axis, shape = at.axis(at.attributes.axis(call)), at.shape(call)
    return at.build.node(Concat, at.build.lifted(at.tensors(call.args[0]), shape), shape, axis=axis)


def _lower_split(at: Operands, call: Call, item: int) -> str:
    axis, begin, end, step = at.attributes.piece(call, item)
    return at.build.slices(at.tensor(call.args[0]), [(at.axis(axis), begin, end, step)])


def _lower_strided_slice(at: Operands, call: Call) -> str:
    lifted = [(at.axis(axis), begin, end, step) for axis, begin, end, step in at.slices(call)]
    return at.build.slices(at.tensor(call.args[0]), lifted)


def _lower_flip(at: Operands, call: Call) -> str:
    axis = at.axis(at.attributes.axis(call))
    data = at.tensor(call.args[0])
    return at.build.slices(data, [(axis, at.build.shape_of(data)[axis] - 1, -1, -1)])


def _lower_take(at: Operands, call: Call) -> str:
    """Slices, one behind the other."""
    data, axis = at.tensor(call.args[0]), at.axis(at.attributes.axis(call))
    shape = at.build.shape_of(data)
    indices = at.array(call.args[1]).reshape(-1).tolist()
    parts = tuple(at.build.slices(data, [(axis, *run)]) for run in runs(indices))
    taken = (*shape[:axis], len(indices), *shape[axis + 1 :])
    whole = at.build.node(Concat, parts, taken, axis=axis) if len(parts) > 1 else parts[0]
    return at.build.reshape(whole, at.shape(call))


def _lower_broadcast(at: Operands, call: Call) -> str:
    """Times ones, which an op that broadcasts by itself needs not (``graph/strided.py``)."""
    data, shape = at.tensor(call.args[0]), at.shape(call)
    own = at.build.shape_of(data)
    padded = (1,) * (len(shape) - len(own)) + own
    data = data if padded == own else at.build.reshape(data, padded)
    ones = np.ones([1 if before == n else n for before, n in zip(padded, shape, strict=True)], np.float32)
    if ones.size == 1:
        return at.build.reshape(data, shape)
    return at.build.node(Binary, (data, at.build.constant(ones)), shape, kind="mul")


def _lower_pad(at: Operands, call: Call) -> str:
    widths = ((0, 0),) * at.build.lift + at.attributes.pad_widths(call)
    value = at.attributes.pad_value(call) or 0.0
    return at.node(Pad, call, widths=widths, mode=at.attributes.pad_mode(call), value=value)


def _lower_pixel_shuffle(at: Operands, call: Call) -> str:
    return at.build.depth_to_space(at.tensor(call.args[0]), int(call.attrs.upscale_factor))


def _lower_depth_to_space(at: Operands, call: Call) -> str:
    blocks_first = str(call.attrs.mode) == "DCR"
    data = at.tensor(call.args[0])
    return at.build.depth_to_space(data, int(call.attrs.block_size), blocks_first=blocks_first)


# Rows ----------------------------------------------------------------------------------------------

_IN_PLACE = OpRow(cost="in place", open_sizes=True, check=_check_elements, lower=_lower_reshape)
_MOVE = OpRow(cost="move")
_TRANSPOSE = replace(_MOVE, axis_zero="permutation", open_sizes=True, lower=_lower_transpose)


def _both(name: str, base: OpRow) -> OpRow:
    return replace(base, relax=name, relay=name)


ROWS = (
    *(_both(name, _IN_PLACE) for name in ("reshape", "squeeze", "expand_dims", "nn.batch_flatten")),
    replace(_IN_PLACE, relax="flatten"),
    replace(_IN_PLACE, relay="copy"),
    replace(_IN_PLACE, relay="annotation.stop_fusion"),
    _both("nn.dropout", replace(_IN_PLACE, lower=None, item=_lower_dropout)),
    replace(_TRANSPOSE, relax="permute_dims", relay="transpose"),
    replace(_TRANSPOSE, relay="layout_transform", check=_check_layout_transform),
    replace(
        _MOVE,
        relax="concat",
        relay="concatenate",
        axis_zero="axis",
        open_sizes=True,
        check=_check_sides,
        takes_constants=True,
        relax_check=_check_written_out,
        lower=_lower_concat,
    ),
    _both(
        "split", replace(_MOVE, axis_zero="axis", open_sizes=True, check=_check_pieces, item=_lower_split)
    ),
    _both(
        "strided_slice",
        replace(
            _MOVE,
            axis_zero="slices",
            open_sizes=True,
            check=_check_strided_slice,
            lower=_lower_strided_slice,
        ),
    ),
    replace(_MOVE, relax="flip", relay="reverse", axis_zero="axis", open_sizes=True, lower=_lower_flip),
    _both(
        "nn.pad",
        replace(
            _MOVE,
            axis_zero="widths",
            open_sizes=True,
            constants={1: "padding value"},
            numbers={1},
            check=_check_pad,
            lower=_lower_pad,
        ),
    ),
    _both(
        "take",
        replace(
            _MOVE,
            axis_zero="axis",
            open_sizes=True,
            constants={1: "index"},
            numbers={1},
            check=_check_take,
            lower=_lower_take,
        ),
    ),
    replace(_MOVE, relay="nn.mirror_pad", axis_zero="widths", check=_check_pad, lower=_lower_pad),
    replace(_MOVE, relax="nn.pixel_shuffle", images=True, lower=_lower_pixel_shuffle),
    replace(
        _MOVE,
        relay="nn.depth_to_space",
        images=True,
        check=_check_depth_to_space,
        lower=_lower_depth_to_space,
    ),
    _both(
        "broadcast_to",
        replace(
            _MOVE,
            axis_zero="result",
            open_sizes=True,
            numbers={1},
            check=_check_broadcast,
            lower=_lower_broadcast,
        ),
    ),
    *(_both(name, _MOVE) for name in ("shape_of", "stack", "tile", "repeat")),
)
