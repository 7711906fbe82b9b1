"""Slice of axes whose sizes are open, or from and to sizes that are.

Exporters write "to the end" as an end of 2³¹-1, 2⁶³-1 or 10⁹.  TVM makes ``min(2147483647, n)`` of the new
size, takes that number for the most it can be, and sets so many elements aside in memory.
"""

from __future__ import annotations

from typing import Any

from tvm import relax, tirx

from convoy.relax.checks import check
from convoy.relax.dataflow import is_constant
from convoy.relax.importer.late import name_sizes
from convoy.relax.importer.node_error import NodeError
from convoy.relax.importer.reshape import read_whole
from convoy.relax.importer.sizes import is_late

FAR = 10**9
"""From here on an end is the end of any axis, and its negative the start."""
TO_THE_START = (2**31 - 1, 2**63 - 1)
"""Ends that ONNX Runtime takes for the start of an axis, where it is cut backwards."""


def convert_slice(bb: Any, inputs: Any, attrs: dict[str, Any]) -> Any:
    """A slice within the axes it cuts; one that leaves nothing off is left out.

    None (the frontend's own way) for those of fixed axes by numbers, and of bounds that a run computes; but
    where a cut leaves nothing TVM counts fewer elements than none, or refuses it.
    """
    x = inputs[0]
    shape = bb.algebra.sizes(x) if isinstance(x.ty, relax.TensorType) else None
    starts, ends = read_whole(inputs[1]), read_whole(inputs[2])
    if shape is None or starts is None or ends is None or len(starts) != len(ends):
        return None
    if not all(given is None or is_constant(given) for given in inputs[3:5]):
        return None
    axes, steps = (read_whole(given) for given in inputs[3:5])
    axes = [int(a) % len(shape) for a in (axes or range(len(starts))) if -len(shape) <= a < len(shape)]
    steps = [max(-FAR, min(step, FAR)) for step in steps or [1] * len(starts)]
    if 0 in steps:
        raise NodeError(f"expected steps forwards or backwards, got {steps}", "correct the steps")
    if not len(axes) == len(steps) == len(starts):
        return None
    cuts = list(zip(axes, starts, ends, steps, strict=True))
    if all(isinstance(n, int) for n in (*starts, *ends, *(shape[a] for a in axes))) and not any(
        not (step < 0 and end in TO_THE_START) and not range(shape[axis])[start:end:step]
        for axis, start, end, step in cuts
    ):
        return None
    backwards = [cut for cut in cuts if cut[3] < 0]
    if not all(isinstance(bound, int) for _, start, end, _ in backwards for bound in (start, end)):
        return None
    for bounds in backwards:
        x = _turn(bb, x, *bounds)
    spans, known = [], is_constant(x)
    for axis, start, end, step in cuts:
        if step < 0:
            continue
        first, last = _first(bb, start, shape[axis], known), _last(bb, end, shape[axis], known)
        if step == 1 and _is(first, 0) and bb.algebra.same(last, shape[axis]):
            continue
        if is_late(first) or is_late(last):
            (length,) = name_sizes(bb, [bb.algebra.most(bb.algebra.subtract(last, first), 0)])
            last = bb.algebra.add(first, length)
        elif not bb.algebra.at_least(bb.algebra.subtract(last, first), 0):
            last = bb.algebra.most(last, first)
        spans.append((axis, first, last, step))
    if not spans:
        return x
    cut, firsts, lasts, strides = (list(part) for part in zip(*spans, strict=True))
    return relax.op.strided_slice(x, cut, as_bounds(firsts), as_bounds(lasts), strides, assume_inbound=True)


def _first(bb: Any, start: Any, size: Any, known: bool = False) -> Any:
    algebra = bb.algebra
    if isinstance(start, int):
        if start == 0 or start <= -FAR:
            return 0
        if start > 0:
            return start if algebra.at_least(size, start) else algebra.least(start, size)
        return algebra.most(algebra.add(size, start), 0)
    return _within(bb, start, size, known)


def _last(bb: Any, end: Any, size: Any, known: bool = False) -> Any:
    algebra = bb.algebra
    if isinstance(end, int):
        if end >= FAR:
            return size
        if end >= 0:
            return end if algebra.at_least(size, end) else algebra.least(end, size)
        return algebra.most(algebra.add(size, end), 0)
    return _within(bb, end, size, known)


def _within(bb: Any, bound: Any, size: Any, known: bool) -> Any:
    """An open bound: one below 0 counts from the end, and one outside is that of the axis.

    Two such bounds are refused by the call, so that sizes stay the arithmetic that regions read: one like
    ``n - 4``, where it is below 0, and one outside of a constant, as of a table of positions or a mask.
    """
    algebra, zero = bb.algebra, tirx.IntImm("int64", 0)
    if algebra.at_least(algebra.subtract(-1, bound), 0):
        bound = algebra.most(algebra.add(size, bound), 0)
    elif not algebra.at_least(bound, 0):
        if is_late(bound) or algebra.at_least(algebra.subtract(0, bound), 0):
            behind = tirx.Select(bound < zero, tirx.max(bound + size, zero), bound)
            return name_sizes(bb, [algebra.least(behind, size)])[0]
        check(bb, [algebra.most(bound, 0)], [bound])
    if algebra.at_least(algebra.subtract(size, bound), 0):
        return bound
    if known and not is_late(bound):
        check(bb, [algebra.most(bound, size)], [size])
        return bound
    inside = algebra.least(bound, size)
    return name_sizes(bb, [inside])[0] if is_late(bound) else inside


def _turn(bb: Any, x: Any, axis: int, start: int, end: int, step: int) -> Any:
    """An axis backwards: what is between the bounds, turned, and of that each so manieth element."""
    algebra = bb.algebra
    size = algebra.sizes(x)[axis]
    if end in TO_THE_START:
        first: Any = 0
    else:
        first = size if end == -1 or end >= FAR else _first(bb, end + 1, size)
    last = size if start == -1 else _last(bb, start + 1, size)
    if start < -1:  # one in front of the axis is its first element
        last = algebra.most(last, 1)
    if not algebra.at_least(algebra.subtract(last, first), 0):
        last = algebra.most(last, first)
    if not (_is(first, 0) and algebra.same(last, size)):
        cut = relax.op.strided_slice(
            x, [axis], as_bounds([first]), as_bounds([last]), [1], assume_inbound=True
        )
        x, size = bb.emit(cut), algebra.subtract(last, first)
    x = bb.emit(relax.op.flip(x, axis))
    if step == -1:
        return x
    return bb.emit(relax.op.strided_slice(x, [axis], [0], as_bounds([size]), [-step], assume_inbound=True))


def _is(value: Any, number: int) -> bool:
    return isinstance(value, int) and value == number


def as_bounds(bounds: list[Any]) -> list[Any]:
    """Numbers and expressions as strided_slice takes them."""
    return [b if isinstance(b, int) else relax.prim_value(b) for b in bounds]
