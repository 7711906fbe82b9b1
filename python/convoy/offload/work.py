"""How much work an op is, and how much of it is worth the call of a region."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from convoy.report.decision import RoadStep

WORTH_BYTES = 64 << 10
"""A region without a heavy op (convolution, matmul, pooling, LRN, resize) is worth its call, some
5 µs with the barrier of its threads, once it moves this much for an image; reshapes move nothing."""

Shape = Sequence[object]
"""Lengths of axes; one that is not known counts as 1."""

_CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
_TRANSPOSED = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
_POOLS = ("nn.max_pool", "nn.avg_pool")
"""How the names of pools on windows begin."""
_PRODUCTS = ("matmul", "nn.matmul", "nn.dense", "nn.batch_matmul")
_REDUCTIONS = (
    "mean", "sum", "max", "min", "variance", "nn.adaptive_avg_pool2d", "nn.global_avg_pool2d",
    "nn.global_max_pool2d",
)  # fmt: skip
_IN_PLACE = (
    "reshape", "flatten", "expand_dims", "squeeze", "nn.batch_flatten", "copy", "annotation.stop_fusion",
    "nn.dropout",
)  # fmt: skip
"""Ops that keep the elements where they are."""
_MOVES = (
    *_IN_PLACE, "permute_dims", "transpose", "layout_transform", "concat", "concatenate", "split",
    "strided_slice", "nn.pad", "nn.pixel_shuffle", "nn.depth_to_space", "shape_of", "take", "broadcast_to",
    "stack", "tile", "repeat",
)  # fmt: skip


def count_flops(op: str, attrs: Any, result: Shape, operands: Sequence[Shape]) -> int:
    """Floating-point operations of one call.

    A multiply-add is two; an elementwise op is one an element; moving data is none.

    Parameters
    ----------
    attrs : Any
        Attributes of the op.
    result, operands
        Shapes of what it computes (its first item) and reads.
    """
    if op in _CONVOLUTIONS:
        layout = str(attrs.out_layout or attrs.data_layout)
        return 2 * elements(result) * _weights_each(operands[1], result, layout)
    if op in _TRANSPOSED:
        return 2 * elements(operands[0]) * _weights_each(operands[1], operands[0], str(attrs.data_layout))
    if op in _PRODUCTS:
        return 2 * elements(result) * elements(operands[0][-1:])
    if op in _REDUCTIONS:
        return elements(operands[0])
    if op in _MOVES:
        return 0
    window = [int(length) for length in attrs.pool_size] if op.startswith(_POOLS) else []
    return elements(result) * prod(window)


def _weights_each(weights: Shape, tensor: Shape, layout: str) -> int:
    """Weights, in a layout of their own, that each element of ``tensor`` meets, which is in ``layout``."""
    axes = [letter for letter in layout.upper() if letter.isalpha()]
    # not strict: a tensor of unknown shape stands here as one without elements
    channels = elements([length for letter, length in zip(axes, tensor, strict=False) if letter == "C"])
    return elements(weights) // max(channels, 1)


def count_bytes(op: str, result: Shape, operands: Sequence[Shape]) -> int:
    """Bytes one call reads and writes."""
    return 0 if op in _IN_PLACE else 4 * sum(elements(shape) for shape in (result, *operands))


def elements(shape: Shape) -> int:
    return prod(length if isinstance(length, int) else 1 for length in shape)


_GIVEN_BACK = "given back"


def not_worth_a_call(moved: Sequence[int], *, heavy: bool) -> str | None:
    """Why a region of ops that move so many bytes each is given back; None if it is worth its call."""
    if heavy or sum(moved) >= WORTH_BYTES:
        return None
    what = f"{len(moved)} ops" if len(moved) > 1 else "one op"
    found = f"a region of {what} moving {sum(moved)} bytes"
    return given_back(f"{found}, expected {WORTH_BYTES} or a heavy op to be worth its call")


def given_back(reason: str) -> str:
    """Why a region that was cut out, or would have been, is left after all."""
    return f"{_GIVEN_BACK}: {reason}"


def step_of(reason: str) -> RoadStep:
    """The step that leaves an op for this reason."""
    return "partition" if reason.startswith(_GIVEN_BACK) else "annotate"
