"""How much work an op is, and how much of it is worth the call of a region."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from convoy.ops.attributes import elements
from convoy.ops.reader import Call, Reader, TensorType
from convoy.ops.table import row_of
from convoy.report.decision import RoadStep

WORTH_BYTES = 64 << 10
"""A region without a heavy op (convolution, matmul, pooling, LRN, resize) is worth its call, some
5 µs with the barrier of its threads, once it moves this much for an image; reshapes move nothing.
One figure for all machines: a module is partitioned, and its regions named, before there is a target."""

Shape = Sequence[object]
"""Lengths of axes; one that is not known counts as 1."""


def count_flops(call: Call, at: Reader) -> int:
    """Floating-point operations of one call.

    A multiply-add is two; an elementwise op is one an element; moving data is none.
    """
    cost, attrs = row_of(at.name(call)).cost, call.attrs
    operands = _shapes(at.reads(call))
    result = next(iter(_shapes(at.results(call))), (0,))
    if cost == "convolution":
        layout = str(attrs.out_layout or attrs.data_layout)
        return 2 * elements(result) * _weights_each(operands[1], result, layout)
    if cost == "transposed":
        return 2 * elements(operands[0]) * _weights_each(operands[1], operands[0], str(attrs.data_layout))
    if cost == "product":
        rows = operands[0][-2:-1] if getattr(attrs, "transpose_a", False) else operands[0][-1:]
        return 2 * elements(result) * elements(rows)
    if cost == "attention":
        return 2 * elements(operands[1][1:2]) * (elements(operands[0]) + elements(result))
    if cost == "recurrent":
        return 2 * elements(operands[0][:2]) * elements(operands[1])
    if cost == "reduction":
        return elements(operands[0])
    if cost in ("in place", "move"):
        return 0
    window = [int(length) for length in attrs.pool_size] if cost == "window" else []
    return elements(result) * prod(window)


def _weights_each(weights: Shape, tensor: Shape, layout: str) -> int:
    """Weights, in a layout of their own, that each element of ``tensor`` meets, which is in ``layout``."""
    axes = [letter for letter in layout.upper() if letter.isalpha()]
    # not strict: a tensor of unknown shape stands here as one without elements
    channels = elements([length for letter, length in zip(axes, tensor, strict=False) if letter == "C"])
    return elements(weights) // max(channels, 1)


def count_bytes(call: Call, at: Reader) -> int:
    """Bytes one call reads and writes, of the tuple that it may give the first item's."""
    if row_of(at.name(call)).cost == "in place":
        return 0
    return 4 * sum(map(elements, _shapes([*at.results(call)[:1], *at.reads(call)])))


def _shapes(tensors: Sequence[TensorType]) -> list[Shape]:
    """Those that are known; the others are of no elements, and so is what is no tensor at all."""
    return [(0,) if tensor.dims is None else tensor.dims for tensor in tensors]


class GivenBack(str):
    """Why a region that was cut out, or would have been, is left after all: it knows its step."""

    step: RoadStep = "partition"


def not_worth_a_call(moved: Sequence[int], *, heavy: bool) -> GivenBack | None:
    """Why a region of ops that move so many bytes each is given back; None if it is worth its call."""
    if heavy or sum(moved) >= WORTH_BYTES:
        return None
    what = f"{len(moved)} ops" if len(moved) > 1 else "one op"
    found = f"a region of {what} moving {sum(moved)} bytes"
    return given_back(f"{found}, expected {WORTH_BYTES} or a heavy op to be worth its call")


def given_back(reason: str) -> GivenBack:
    """``reason`` as one of a region."""
    return GivenBack(f"given back: {reason}")


def step_of(reason: str) -> RoadStep:
    """The step that leaves an op for this reason."""
    return reason.step if isinstance(reason, GivenBack) else "annotate"
